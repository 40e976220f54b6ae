from .study import Cell as Cell
from .study import check as check
from .study import rows as rows
from .study import run as run
