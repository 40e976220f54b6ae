"""What stands below a figure: how to read it, with the settings and the sides of intervals that its tables have."""

import inspect
from collections.abc import Iterable, Mapping
from types import ModuleType

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from grpo_theory.page.style import NORMAL_95

SIDES = {"below": "lies below 0", "above": "lies above 0", "astride": "holds 0"}
"""Where an interval can lie, in words."""


def caption_of(figure: ModuleType, tables: Mapping[str, pd.DataFrame]) -> str:
    """Return a figure's caption: what its docstring says after the first line.

    Braces there hold names of the module, or of what its function ``settings(tables)`` returns, if it has one.
    """
    known = vars(figure) | (figure.settings(tables) if hasattr(figure, "settings") else {})
    text = inspect.cleandoc(str(figure.__doc__)).partition("\n\n")[2]
    return " ".join(text.format_map(known).split())


def listed(values: Iterable[object]) -> str:
    """Return values in words, whole numbers with commas in thousands: "32, 256 and 2,048"."""
    *first, last = (f"{value:,}" if isinstance(value, int | np.integer) else str(value) for value in values)
    return f"{', '.join(first)} and {last}" if first else last


def spanned(values: ArrayLike) -> str:
    """Return the least and the greatest of whole numbers, "32 to 2,048", or the only one."""
    least, most = int(np.min(values)), int(np.max(values))
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def sides(rows: pd.DataFrame) -> pd.Series:
    """Return for each row the key in `SIDES` of its 95% interval, estimate +- 1.96 standard errors."""
    half = NORMAL_95 * rows["standard_error"]
    names = np.select([rows["estimate"] + half < 0.0, rows["estimate"] - half > 0.0], ["below", "above"], "astride")
    return pd.Series(names, index=rows.index)


def signed(number: float, form: str = ".2f") -> str:
    """Write a number with a minus as long as a plus, and without one at nought."""
    text = format(number, form)
    return text.lstrip("+-") if float(text) == 0.0 else text.replace("-", "\u2212")
