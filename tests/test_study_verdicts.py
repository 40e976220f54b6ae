"""Verdicts of quick runs beside those of the last full run: a smaller study may be unsure, and never says the opposite."""

import pandas as pd
import pytest
from pages import DOCS
from study_tables import computed

from grpo_theory.evidence import judge
from grpo_theory.harness.study import chunk_generator
from simulations.collection import studies

LONG = {
    *("ratios_by_length", "efficiency_by_length", "advice_regret", "score_power", "clipped_responses", "group_size"),
    *("allocation", "baselines", "best_size_law", "twin_reach", "training_gap", "planned_estimator", "plan_coverage"),
    *("full_gradient", "passes", "learned_phases", "success_flow", "log_ratios", "coverage", "gap_weights"),
    *("gain_map", "learned_time", "group_size_growth", "group_size_path", "estimators", "finite_group", "path_sums"),
    *("error_law", "stopped_groups", "gradient_error", "allocation_step", "weak_sums", "phase_course", "prompt_baselines"),
    *("drift", "curvature_proxy", "curvature", "certificates"),
    *("amplification", "dr_grpo", "entropy_mechanism", "gspo", "hidden_biases", "kl_estimators", "leave_two_out", "pkpo"),
    *("mirror_descent", "mirror_descent_mean", "monotone_transforms", "spurious_rewards", "vanishing"),
    *("trained_drift", "network_width", "long_runs"),
}
"""More than a second and a half each, or (the last line) settings that the full run has not: left to `make reproduce`."""
OPPOSITE = {"confirmed": {"refuted", "not reproduced here"}, "refuted": {"confirmed"}, "reproduced here": {"not reproduced here"}}
OPPOSITE["not reproduced here"] = {"confirmed", "reproduced here"}
OTHER_BOUND = {("T15/cost", "shared features, KL")}
"""A quick run has one draw of this problem, and the full one has the worst of many."""
FULL = pd.read_csv(DOCS / "verdicts.csv", keep_default_na=False).set_index(["id", "problem"])[["verdict", "control"]]
FULL = FULL.add_suffix(" of the full run")


@pytest.mark.parametrize(
    "study", [one for one in studies().values() if one.name not in LONG and one.statements], ids=lambda one: one.name
)
def test_a_quick_run_never_says_the_opposite(study):
    """And what is exact is decided as it is in the full run, with a control that is refuted where it is there."""
    found = judge(study.claims(computed(study, True, lambda number, cell, chunk: chunk_generator(study.name, cell, 0, chunk))))
    found = found[[key not in OTHER_BOUND for key in zip(found["id"], found["problem"], strict=True)]]
    rows = found.join(FULL, on=["id", "problem"], how="inner")
    assert len(rows) > 0
    opposite = rows[
        [full in OPPOSITE.get(own, ()) for own, full in zip(rows["verdict"], rows["verdict of the full run"], strict=True)]
    ]
    assert opposite.empty, opposite[["id", "problem", "estimate", "verdict", "verdict of the full run"]]
    exact = rows[(rows["standard_error"] == 0.0) & rows["verdict"].isin(OPPOSITE)]
    assert (exact["control"] == exact["control of the full run"]).all()
