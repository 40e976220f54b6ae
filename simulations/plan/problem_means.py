"""Means over problems of rows of a table, as evidence."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from grpo_theory.evidence import Evidence


def mean_over_problems(table: pd.DataFrame, wanted: Mapping[str, object]) -> Evidence:
    """Return the evidence of the mean of the rows with the wanted values, which are of independent replications.

    The degrees of freedom are Satterthwaite's (1946): between those of the noisiest row and those of all together.
    """
    part = table[np.logical_and.reduce([table[name] == value for name, value in wanted.items()])]
    squares, free = part["standard_error"].to_numpy() ** 2, part["replications"].to_numpy() - 1.0
    degrees = float(squares.sum() ** 2 / (squares**2 / free).sum()) if squares.any() else float(free.sum())
    error = float(np.sqrt(squares.sum())) / len(part)
    return Evidence(
        float(np.mean(part["estimate"].to_numpy())),
        float(part["prediction"].iloc[0]),
        error,
        replications=max(2, int(degrees) + 1),
    )
