"""Confidence intervals, each a function of samples; an interval function takes (data, level).

The public names are listed in ``__init__.pyi``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
