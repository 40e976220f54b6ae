"""The coverage laboratory: any interval function, ours or a user's, on data of which the truth is known.

The public names are listed in ``__init__.pyi``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
