from .study import Cell as Cell
