"""Pictures of results, drawn on axes of yours or new ones, which are returned: seaborn and matplotlib, to be changed at will.

The public names are listed in ``__init__.pyi``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
