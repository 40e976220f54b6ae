"""Predictions in closed form.

``__init__.pyi`` lists what the subpackage offers. A file is imported when one of its names is first asked for.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
