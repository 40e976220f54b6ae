"""Exact results without randomness: the law of any gradient estimate, the objective, maximisers and balls.

``__init__.pyi`` lists what the subpackage offers. A file is imported when one of its names is first asked for, because the
simulators need the tables of kernels and no optimiser.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
