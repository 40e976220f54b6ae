"""The study of the planner's regret: its problems and truths by other routes, its controls, the numbers on the page."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtrit

import grpo_theory as gt
from grpo_theory.intervals import components_jackknife
from grpo_theory.plan import choose_group_size
from simulations.plan import plan_coverage
from simulations.plan.pilot_problems import ASKED, LIMITS, NAMES, constants, judge, problem, truth
from simulations.plan.planned_group_size import QUANTITIES

TOP = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", NAMES)
def test_the_truth_is_the_enumerated_error_of_every_batch(name):
    exact, case = truth(constants(name)), problem(name)
    for size in (2, exact.group_size, ASKED, 64):
        enumerated = gt.gradient_mse(case, case.theta, "rloo", batch_size=LIMITS.prompts(size), group_size=size)
        assert exact.mse.estimate[exact.at(size)] == pytest.approx(enumerated, rel=1e-8)
    assert exact.loss.estimate[exact.best] == 0.0
    assert exact.mse.estimate.argmin() == exact.best


def test_what_is_judged_is_what_the_library_says():
    pilot = gt.Pilot(64, 8)
    rollouts = pilot.take(pilot.sample(problem("linear"), 3, 1), 0)
    choice, law = choose_group_size(rollouts, LIMITS), constants("linear")
    said = judge(choice, constants("linear"))
    truth_of = np.array([law.c1, law.c2, law.c3])
    covered = (choice.constants.low <= truth_of) & (truth_of <= choice.constants.high)
    assert [said[name] for name in ("c1", "c2", "c3")] == covered.tolist()
    interval = components_jackknife(rollouts)
    assert (choice.constants.low <= interval.low).all()
    assert (choice.constants.high >= interval.high).all()
    half = stdtrit(63, 0.975) * np.sqrt(np.diagonal(choice.constants.covariance))
    np.testing.assert_allclose(interval.high - interval.estimate, half, rtol=1e-10)
    exact = truth(constants("linear"))
    assert said["regret"] == exact.mse.estimate[exact.at(choice.group_size)] / exact.mse.estimate.min() - 1.0


def load_tool():
    spec = importlib.util.spec_from_file_location("write_planner", TOP / "tools" / "write_planner.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_the_pages_numbers_are_those_of_the_table():
    tool, page = load_tool(), (TOP / "docs" / "planner.md").read_text(encoding="utf-8")
    kept = pd.read_csv(TOP / "docs" / "planner.csv")
    assert set(kept["quantity"]) == set(QUANTITIES)
    assert tool.with_tables(page, tool.planner_tables(kept)) == page
    changed = kept.assign(estimate=kept["estimate"] / 2.0)
    assert tool.with_tables(page, tool.planner_tables(changed)) != page
    tails = pd.read_csv(TOP / "docs" / "heavy_tails.csv")
    assert tool.with_tables(page, tool.tails_table(tails), tool.TAILS) == page
    assert tool.with_tables(page, tool.tails_table(tails.assign(plugged_in=0.5)), tool.TAILS) != page
    assert set(tails["quantity"]) == set(plan_coverage.TAIL_QUANTITIES)
    runs = pd.read_csv(TOP / "docs" / "planned_run.csv")
    assert tool.with_tables(page, tool.total_table(runs), tool.TOTAL) == page
    assert tool.with_tables(page, tool.total_table(runs.assign(estimate=0.5 * runs["estimate"])), tool.TOTAL) != page
    graded = pd.read_csv(TOP / "docs" / "planned_graded_run.csv")
    assert tool.with_tables(page, tool.total_table(graded), tool.GRADED) == page
    assert tool.with_tables(page, tool.total_table(runs), tool.GRADED) != page
    exact = kept.drop_duplicates("problem").set_index("problem")
    for name in NAMES:
        assert exact.loc[name, "best"] == truth(constants(name)).group_size
