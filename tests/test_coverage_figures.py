"""The figures of coverage draw what a table of coverage says."""

import matplotlib as mpl
import numpy as np
import pandas as pd

mpl.use("Agg")

from grpo_theory.plot.coverages import ranked
from paper_figures import coverage_by_group_size


def test_the_worst_component_is_shown():
    table = pd.MultiIndex.from_product([(2, 8, 32), ("0", "1")], names=["group_size", "component"]).to_frame(index=False)
    shares, at = np.random.default_rng(0).uniform(0.8, 0.99, 6), {"part": "curve", "measure": "coverage", "level": 0.95}
    at |= {"target": "gradient", "interval": "normal", "problem": "p", "batch_size": 4}
    table = table.assign(estimate=shares, low=shares - 0.01, high=shares + 0.005, **at)
    (axes,) = coverage_by_group_size.draw({"coverage": table}).axes
    worst = table.groupby("group_size")["estimate"].min().to_numpy()
    assert any(np.array_equal(line.get_ydata(), worst) for line in axes.lines)
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
