"""The order of intervals in a zip plot: by where the truth lies in them or beyond them."""

import numpy as np
import pandas as pd


def ranked(rows: pd.DataFrame) -> pd.DataFrame:
    """Return intervals less the truth in the order of where it lies, from far inside to far outside, with new percentiles.

    Only limits are needed, so that intervals without an estimate are ranked too. Intervals that are symmetric about an estimate
    are in the order of its distance from the truth in standard errors. Those that do not give an answer are last.

    Parameters
    ----------
    rows : DataFrame
        Columns low and high, less the truth, and covered; one row per interval.

    Returns
    -------
    DataFrame
        The same rows with a column percentile, 100 r / R for rank r of R.
    """
    low, high = (rows[name].to_numpy(dtype=float) for name in ("low", "high"))
    covered = rows["covered"].to_numpy(dtype=bool)
    outside = np.maximum(low, -high)
    with np.errstate(invalid="ignore", divide="ignore"):
        widths_outside = np.nan_to_num(outside / (high - low), nan=0.0)
    order = np.lexsort((outside, widths_outside, ~covered, np.isnan(low)))
    return rows.iloc[order].assign(percentile=100.0 * np.arange(1, len(rows) + 1) / len(rows))
