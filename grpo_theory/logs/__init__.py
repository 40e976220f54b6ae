"""Data as a user has it: rollouts of one batch, the record of one training run, and readers of trainers' logs.

The public names are listed in ``__init__.pyi``.  A file is imported when one of its names is first asked for, because the readers
need pyarrow, and intervals do not.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
