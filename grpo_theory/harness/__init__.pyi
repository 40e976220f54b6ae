from .sides import check as check
from .sides import rows as rows
from .sides import run as run
from .study import Cell as Cell
