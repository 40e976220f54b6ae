from .sides import Check as Check
from .sides import Run as Run
from .sides import check as check
from .sides import rows as rows
from .sides import run as run
from .study import Cell as Cell
