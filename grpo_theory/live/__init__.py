"""Advice while training runs: plain functions for any trainer, a callback for TRL, and verl's folder of rollouts as it fills.

The public names are listed in ``__init__.pyi``.  A file is imported when one of its names is first asked for.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
