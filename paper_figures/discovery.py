"""The figures, found in their folder."""

from collections.abc import Collection
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import paper_figures
from simulations.collection import studies


@cache
def figures() -> dict[str, ModuleType]:
    """Return the figures by name, in the order of the report: every module that states its ``PLACE`` there."""
    modules = (import_module(f"paper_figures.{found.name}") for found in iter_modules(paper_figures.__path__))
    drawn = [module for module in modules if hasattr(module, "PLACE")]
    return {module.__name__.rpartition(".")[2]: module for module in sorted(drawn, key=lambda module: module.PLACE)}


def figures_of(names: Collection[str]) -> list[str]:
    """Return the names of the figures that are drawn from the tables of these studies alone."""
    return [name for name, module in figures().items() if set(module.TABLES) <= set(names)]


def subject(figure: ModuleType) -> str | None:
    """Return the id of the statement beside which a figure stands: the one it names, or the first that its tables decide.

    A figure that names "" is about the whole, and stands beside what was found.
    """
    decided = (name for table in figure.TABLES for name in studies()[table].decides)
    return getattr(figure, "ABOUT", next(decided, None))
