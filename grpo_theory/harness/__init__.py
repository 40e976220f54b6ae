"""What runs a study, ours or a user's: cells and chunks, storage, executors, shards, fingerprints, verdicts on disk.

The public names are listed in ``__init__.pyi``.  A file is imported when one of its names is first asked for, so that a command
answers `--help` at once.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
