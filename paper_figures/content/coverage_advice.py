"""Which interval to use: a rule on the table of coverage."""

from typing import Any

import numpy as np
import pandas as pd

LEVEL = 0.95
SOUND, SHARE = 0.93, 0.75
"""An interval is sound if it covers at least SOUND in at least SHARE of the design's cells."""
CELL = ["problem", "batch_size", "group_size"]
KEYS = ["target", "success", "interval", *CELL]
RULE = (
    f"An interval is sound if its coverage is at least {SOUND:.0%} in at least {SHARE:.0%} of the design's cells. The narrowest "
    "of the sound ones (by the median, over cells, of its median width) is recommended; where none is sound, the one that "
    f"reaches {SOUND:.0%} in most cells is called nearest. Cells are judged apart by the number of prompts B, and where success "
    "is rare. Of several components the worst covered is counted. A dataset that gives no answer is not covered; the last "
    "column but one has their share in the worst cell. Widths are relative to the interval recommended, or nearest, where both "
    "are bounded. Intervals that were tried in few cells are never recommended."
)


def advice(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row an interval and target, with what the rule says of it.

    Parameters
    ----------
    table : DataFrame
        The study "coverage".
    """
    measured = table[(table["level"] == LEVEL) & table["measure"].isin(["coverage", "median width", "unbounded"])]
    design = measured[measured["part"] == "design"]
    cells = design.pivot_table(index=KEYS, columns="measure", values="estimate", aggfunc="min", sort=False)
    shares = design.assign(refused=design["failures"] / design["replications"]).groupby(KEYS, sort=False)["refused"].max()
    cells = cells.join(shares).reset_index()
    points = measured[(measured["part"] == "point") & (measured["measure"] == "coverage")]
    judged = [_judge(key, part, points) for key, part in cells.groupby(["target", "success", "batch_size"], sort=False)]
    return pd.concat(judged, ignore_index=True).sort_values(["success", "B"], kind="stable", ignore_index=True)


def choices(found: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each target and one column for each regime, with the interval recommended there."""
    regimes = "success " + found["success"] + ", B = " + found["B"].astype(str)
    chosen = found.assign(regime=regimes, choice=found["interval"].where(found["advice"] == "recommended"))
    wide = chosen.groupby(["target", "regime"], sort=False)["choice"].first().unstack("regime")
    return wide.astype(object).where(wide.notna(), "none is sound").rename_axis(columns=None).reset_index()


def _judge(key: Any, cells: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    target, success, batch_size = key
    points = points[(points[["target", "success", "batch_size"]] == list(key)).all(axis=1)]
    everywhere = len(cells[CELL].drop_duplicates())
    whole = cells.groupby("interval")["coverage"].transform("size") == everywhere
    shares = (cells["coverage"] >= SOUND).groupby(cells["interval"], sort=False).mean()
    eligible = cells[whole & cells["interval"].isin(shares.index[shares >= SHARE])]
    widths = cells.pivot_table(index=CELL, columns="interval", values="median width", sort=False)
    if len(eligible):
        best = str(widths[eligible["interval"].unique()].div(widths.min(axis=1), axis=0).median().idxmin())
    else:
        best = str(shares[cells.loc[whole, "interval"].unique()].idxmax())
    bounded = widths.where(np.isfinite(widths))
    rows = []
    for interval, part in cells.groupby("interval", sort=False):
        worst = part.loc[part["coverage"].idxmin()]
        sound = shares[interval] >= SHARE
        few = len(part) < everywhere
        verdict = "sound" if sound else "not sound"
        if interval == best:
            verdict = "recommended" if sound else "none is sound; nearest"
        rows.append(
            {
                "success": success,
                "B": batch_size,
                "target": target,
                "interval": interval,
                "coverage at a point": _at_point(points[points["interval"] == interval]),
                "least": float(worst["coverage"]),
                "median": float(part["coverage"].median()),
                f"share of cells with {SOUND:.0%}": float(shares[interval]),
                "cells": len(part),
                "worst at": f"{worst['problem']}, B = {worst['batch_size']}, G = {worst['group_size']}",
                "relative width": _median((bounded[interval] / bounded[best]).dropna()),
                "unbounded sets": float(part["unbounded"].mean()),
                "no answer": float(worst["refused"]),
                "advice": f"{verdict}; few cells" if few else verdict,
            }
        )
    return pd.DataFrame(rows)


def _median(values: pd.Series) -> float:
    """Return the median, and NaN of nothing, of which some versions of pandas warn."""
    return float(values.median()) if len(values) else float("nan")


def _at_point(points: pd.DataFrame) -> str:
    """Name the first point's coverage, of the worst component, with its limits."""
    if points.empty:
        return "not tried"
    first = points.iloc[0]
    here = points[(points[CELL] == first[CELL]).all(axis=1)]
    worst = here.loc[here["estimate"].idxmin()]
    return f"{worst['estimate']:.3f} ({worst['low']:.3f}, {worst['high']:.3f})"
