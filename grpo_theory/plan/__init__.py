"""Advice from a user's rollouts: group size, batch, baseline and learning rate, and the installed command.

What the subpackage offers is listed in ``__init__.pyi``. A file is imported when one of its names is first asked for, so that
the command answers `--help` at once.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
