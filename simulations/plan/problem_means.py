"""Means over problems of rows of a table, as evidence."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from grpo_theory.evidence import Evidence
from simulations.plan.error_parts import Part, pooled


def mean_over_problems(table: pd.DataFrame, wanted: Mapping[str, object]) -> Evidence:
    """Return the evidence of the mean of the rows with the wanted values, which are of independent replications.

    The degrees of freedom are Satterthwaite's (1946): between those of the noisiest row and those of all together.
    """
    part = table[np.logical_and.reduce([table[name] == value for name, value in wanted.items()])]
    together = pooled(Part(row.standard_error**2, row.replications - 1.0) for row in part.itertuples())
    return Evidence(
        float(np.mean(part["estimate"].to_numpy())),
        float(part["prediction"].iloc[0]),
        float(np.sqrt(together.variance)) / len(part),
        replications=max(2, int(together.free) + 1),
    )
