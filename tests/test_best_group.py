"""Which whole group size has the least error: the search, the readings of the law, and verdicts that follow the evidence."""

import numpy as np
import pytest
from study_tables import table

import grpo_theory as gt
from grpo_theory.evidence import judge
from grpo_theory.harness.sides import study_of
from simulations.gradient import best_group

STUDY = study_of(best_group)


@pytest.mark.parametrize("ratio", [0.3, 1.9, 2.1, 5.8, 11.9, 12.1, 300.0])
def test_a_laws_whole_minimiser_is_the_least_over_all_group_sizes(ratio):
    sizes = np.arange(2, 60)
    found = best_group.minimisers(1.0, ratio, 4.0 * ratio)
    assert found["corrected"] == sizes[np.argmin(sizes + ratio / (sizes - 1))]
    assert found["printed"] == sizes[np.argmin(sizes + ratio / sizes)] == max(2, found["corrected"] - 1)
    assert found["remainder"] == sizes[np.argmin(sizes + 4.0 * ratio / sizes)]


def test_a_cost_that_only_falls_has_no_best_group():
    with pytest.raises(ValueError, match="cost must rise before 4096"):
        best_group.first_rise(lambda size: 1.0 / size)
    assert best_group.first_rise(lambda size: (size - 7.2) ** 2) == 7


def test_the_printed_law_asks_for_one_response_too_few():
    found = table(best_group, problem=("tabular", "mixed", "graded"))
    verdicts = judge(STUDY.claims(found)).set_index(["id", "problem"])
    assert verdicts["power"].all()
    for name in ("tabular", "mixed", "graded"):
        assert verdicts.loc[("U9/best/corrected", name), "verdict"] == "confirmed"
        assert verdicts.loc[("U9/best/printed", name), "verdict"] == "refuted"
        assert verdicts.loc[("U9/best/remainder", name), "verdict"] == "refuted"
        assert verdicts.loc[("U4/term", name), "verdict"] == "refuted"
    thirds = found[found["statement"] == "U4/term"]
    np.testing.assert_allclose(thirds["prediction"], 2.0, rtol=1e-11)
    np.testing.assert_allclose(thirds["estimate"], 64.0 / 63.0, rtol=1e-9)


def test_with_another_estimator_the_corrected_law_is_refuted(monkeypatch):
    """An oracle's error has no third term: its best group is the smallest."""
    monkeypatch.setattr(gt, "gradient_mse", lambda *point, **sizes: oracle_mse(*point, **sizes))
    verdicts = judge(STUDY.claims(table(best_group, problem=("tabular",)))).set_index("id")
    assert verdicts.loc["U9/best/corrected", "verdict"] == "refuted"


def oracle_mse(problem, theta, _, **sizes):
    return gt.gradient_law(problem, theta, "oracle", **sizes).mse
