"""The figures of coverage draw what a table of coverage says."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

mpl.use("Agg")

from grpo_theory.plot.coverages import ranked
from paper_figures import coverage_by_group_size

BALANCED, RARE = "half-trained, balanced", "half-trained, rare"
CELLS = [(part, name, b, g) for part in ("design", "curve") for name in (RARE, BALANCED) for b in (4, 16) for g in (2, 8, 32)]


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(0)
    rows = []
    for target, names in (("value", ("student", "normal", "exact")), ("gradient", ("student", "normal"))):
        for name in names:
            for part, problem, b, g in CELLS:
                key = {"interval": name, "target": target, "problem": problem, "batch_size": b, "group_size": g, "level": 0.95}
                key |= {"part": part, "success": "rare" if problem == RARE else "common", "replications": 100, "failures": 2}
                for component in ("",) if target == "value" else ("0", "1"):
                    share = rng.uniform(0.8, 0.99)
                    key["component"] = component
                    rows.append(key | {"measure": "coverage", "estimate": share, "low": share - 0.01, "high": share + 0.005})
                    rows.append(key | {"measure": "median width", "estimate": rng.uniform(1.0, 3.0)})
                    rows.append(key | {"measure": "unbounded", "estimate": 0.0})
    return {"coverage": pd.DataFrame(rows)}


def test_the_worst_component_is_shown(tables):
    figure = coverage_by_group_size.draw(tables)
    table = tables["coverage"].query(
        "part == 'curve' and measure == 'coverage' and target == 'gradient' and problem == @BALANCED"
    )
    worst = table[table["interval"] == "normal"].groupby("group_size")["estimate"].min()
    drawn = [line.get_ydata() for line in figure.axes[3].lines]
    assert any(np.array_equal(y, worst.to_numpy()) for y in drawn)
    mpl.pyplot.close("all")


def test_symmetric_intervals_are_ranked_by_the_distance_in_standard_errors():
    rng = np.random.default_rng(3)
    z, error = rng.standard_normal(50), rng.uniform(0.5, 2.0, 50)
    low, high = error * (z - 1.96), error * (z + 1.96)
    found = ranked(pd.DataFrame({"z": z, "low": low, "high": high, "covered": np.abs(z) <= 1.96}))
    assert found["z"].abs().is_monotonic_increasing
    assert found["percentile"].tolist() == [2.0 * (rank + 1) for rank in range(50)]


def test_colours_of_intervals_of_any_form_meet_once():
    """Fieller's sets are unbounded now and then: the rank of |z|, which puts them anywhere, mixed their colours."""
    inf, nan = np.inf, np.nan
    low = [0.1, -1.0, -inf, -inf, nan, 2.0, -0.1, 0.3]
    high = [inf, inf, inf, 0.5, nan, 3.0, 4.0, 0.3]
    covered = [bool(a <= 0.0 <= b) for a, b in zip(low, high, strict=True)]
    low, high, covered = [1.0, *low], [2.0, *high], [True, *covered]  # of a set of two rays the flag decides, and not the limits
    found = ranked(pd.DataFrame({"low": low, "high": high, "covered": covered}))
    assert found["covered"].tolist() == [True] * 5 + [False] * 4
    assert np.isnan(found["low"].iloc[-1])
