"""The error of a whole report, by drawing null reports: what the limits promise, and that other limits break it."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

TOOL = Path(__file__).resolve().parents[1] / "tools" / "family_error.py"
spec = importlib.util.spec_from_file_location("family_error", TOOL)
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)


def test_null_reports_of_few_skewed_runs_keep_the_family_error():
    """1,000 null reports of three statements, 0.05 promised: skewed means of 128 runs, shares of 64 trials, distances of laws.

    As judged at most 5% + 3 sigma of them hold a miss; by Student's quantiles, or the normal's, more than twice as many as that.
    """
    listed = [("U9/printed", "ordering", 128)] * 24 + [("CI/tail_value", "equality", 64)] * 16
    listed += [("U11/normal", "law", 2048)] * 10
    rows = pd.DataFrame(listed, columns=["id", "kind", "replications"])
    found = tool.family_error(rows, 1000, 0.05 / 3)
    assert found["as judged"] < 0.05 + 3.0 * np.sqrt(0.05 * 0.95 / 1000)
    assert min(found["Student"], found["normal"]) > 2.0 * 0.07


def test_large_samples_are_drawn_from_the_same_law_as_small_ones(monkeypatch):
    """Studentised means of 4,096 squared normals, one by one and from the limit: the tails agree, and are not the normal's."""
    direct = tool.studentised(4096, 20_000, np.random.default_rng(1))
    monkeypatch.setattr(tool, "DIRECT", 0)
    limit = tool.studentised(4096, 20_000, np.random.default_rng(2))
    for share in (0.001, 0.01, 0.5, 0.99, 0.999):
        width = 4.9 * np.sqrt(2.0 * share * (1.0 - share) / 20_000) / norm.pdf(norm.ppf(share))
        assert abs(np.quantile(direct, share) - np.quantile(limit, share)) < width
    assert np.quantile(limit, 0.001) < norm.ppf(0.001) - 0.1
