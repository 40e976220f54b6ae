"""What is true about GRPO and its relatives: exact theory, Monte Carlo and verdicts.

What the package offers is listed in ``__init__.pyi``; a name's subpackage is imported when the name is first asked for.
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
