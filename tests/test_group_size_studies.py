"""The studies of the group size: the control variate, and verdicts that follow the evidence."""

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from grpo_theory.evidence import judge
from grpo_theory.exact import directional_derivatives
from simulations.harness.study import table_of
from simulations.training import group_size, group_size_horizon, group_size_path, group_size_schedule
from simulations.training.cases import FAR, case_law, case_problem, case_settings, case_steps
from simulations.training.controlled import controlled_objectives

FAR_CASE = case_settings("kl-linear", FAR, ("Constant", 2.0))


def test_the_control_has_mean_zero_and_takes_most_of_the_variance(seed):
    """|z| < 4.9; the drift that it subtracts is hundreds of standard errors, so an error of some percent in it would show."""
    problem, steps, runs = case_problem(FAR_CASE), case_steps(FAR_CASE, 6), 512
    slopes = [case_law(FAR_CASE, n).slopes for n in (3, 6)]
    plain, controlled = controlled_objectives(
        problem, slopes, steps, [2, 4, 4, 8, 2, 4], budget=256, runs=runs, seed=np.random.SeedSequence(seed(1))
    )
    control = plain - controlled
    error = control.std(axis=0) / np.sqrt(runs)
    assert (np.abs(control.mean(axis=0)) < 4.9 * error).all()
    assert (controlled.var(axis=0) < 0.1 * plain.var(axis=0)).all()
    path = case_law(FAR_CASE, 6).path
    drift = sum(
        step * directional_derivatives(problem, theta, slope[None])[0]
        for step, theta, slope in zip(steps, path, slopes[1], strict=False)
    )
    assert 0.05 * drift > 4.9 * error[1]


def test_plain_objectives_are_those_of_ordinary_training(seed):
    problem, steps = case_problem(FAR_CASE), case_steps(FAR_CASE, 1)
    plain, _ = controlled_objectives(
        problem, [case_law(FAR_CASE, 1).slopes], steps, [4], budget=64, runs=8, seed=np.random.SeedSequence(5)
    )
    runs = gt.simulate_training(
        problem,
        problem.theta,
        "rloo",
        steps,
        batch_size=16,
        group_size=4,
        steps=1,
        replications=8,
        rng=np.random.SeedSequence(5, spawn_key=(0,)),
    )
    np.testing.assert_allclose(plain, runs.objectives, rtol=1e-14)


@pytest.fixture(scope="module")
def far_table():
    """The table of one case whose simulated losses are replaced by the law's, known to a thousandth."""
    settings = FAR_CASE | {
        "budget": 1024,
        "group_sizes": list(group_size.GROUP_SIZES),
        "checkpoints": list(group_size.CHECKPOINTS),
        "runs": 2,
    }
    table = table_of(group_size.rows(settings, [group_size.compute(settings, np.random.SeedSequence(1), 0)]))
    return table.assign(estimate=table["prediction"], standard_error=1e-3 * table["prediction"].abs(), replications=512)


def verdicts(table):
    return judge(group_size.claims(table)).set_index("id")


def test_verdicts_on_the_printed_group_size_follow_the_evidence(far_table):
    found = verdicts(far_table)
    assert found["power"].all()
    assert found["verdict"].to_dict() == {"U9/printed": "refuted", "U9/policy-law": "confirmed", "U9/noise-costs": "confirmed"}
    assert "n = 32" in found.loc["U9/printed", "facts"]
    best_is_two = far_table["estimate"].where(far_table["group_size"] != 2, 0.5 * far_table["estimate"])
    assert verdicts(far_table.assign(estimate=best_is_two)).loc["U9/printed", "verdict"] == "confirmed"
    assert verdicts(far_table.assign(estimate=1.1 * far_table["estimate"])).loc["U9/policy-law", "verdict"] == "refuted"
    assert verdicts(far_table.assign(estimate=-far_table["estimate"])).loc["U9/noise-costs", "verdict"] == "refuted"


def test_budgets_share_a_law_if_the_loss_falls_as_the_budget(far_table):
    for power, verdict in ((1.0, "confirmed"), (0.5, "refuted")):
        scale = 4.0**-power
        larger = far_table.assign(
            budget=4096, **{name: scale * far_table[name] for name in ("estimate", "standard_error", "prediction")}
        )
        found = judge(group_size.claims(pd.concat([far_table, larger])))
        assert found.set_index("id").loc["U9/budgets", "verdict"] == verdict


def test_the_path_of_the_best_group_size_is_judged_exactly():
    rows = []
    for cell in group_size_path.cells(True):
        if cell.settings["problem"] in ("linear", "kl-tabular"):
            rows += group_size_path.rows(cell.settings, [group_size_path.compute(cell.settings, np.random.SeedSequence(0), 0)])
    found = judge(group_size_path.claims(table_of(rows))).set_index("problem")
    assert found["power"].all()
    assert found["verdict"].to_dict() == {
        "linear, Constant(8)": "refuted",
        "linear, Harmonic(120, 14)": "confirmed",
        "kl-tabular, Constant(2)": "refuted",
        "linear": "refuted",
    }
    table = pd.DataFrame(rows).query("checkpoint > 0")
    assert (table["ahead"] <= table["fixed"] + 1e-12).all()
    assert (table["fixed"] <= table["start"] + 1e-12).all()


def test_plans_keep_to_the_budget_and_the_best_plan_loses_least():
    cell = group_size_schedule.cells(True)[0]
    found, law = group_size_schedule.plans(cell.settings), case_law(cell.settings, cell.settings["steps"])
    assert set(found) == set(group_size_schedule.PLANS)
    assert all((group_size_schedule.BUDGET % sizes == 0).all() for sizes in found.values())
    losses = {name: law.loss(group_size_schedule.BUDGET, sizes) for name, sizes in found.items()}
    assert losses["ahead"] < losses["fixed"] < losses["start"]


def test_horizons_are_judged_with_power():
    rows = []
    for cell in group_size_horizon.cells(True):
        settings = dict(cell.settings) | {"runs": 8192 if cell.settings["steps"] == 1 else 1024}
        rows += group_size_horizon.rows(settings, [group_size_horizon.compute(settings, np.random.SeedSequence(3), 0)])
    found = judge(group_size_horizon.claims(table_of(rows)), family_error=0.05).set_index(["id", "problem"])["verdict"]
    one, many = (f"two-speeds, Constant(0.05), N = 120, n = {n}" for n in (1, 100))
    assert found["U9/trace", one] == "refuted"
    assert found["U9/curvature", one] == "confirmed"
    assert found["U9/trace", many] == found["U9/curvature", many] == "confirmed"


@pytest.mark.parametrize(
    ("gain", "verdict", "power"), [(1.0, "confirmed", True), (-1.0, "refuted", True), (2.5, "no power", False)]
)
def test_the_control_of_following_is_not_its_mirror_image(gain, verdict, power):
    """The control wants twice the expected gain: it can survive, and it does not depend on the sign of the evidence."""
    exact = {"start": 12.0, "fixed": 10.0, "current": 10.0, "ahead": 9.0}
    rows = [
        {
            "problem": "p",
            "schedule": "s",
            "budget": 8,
            "steps": 1,
            "step": 1,
            "plan": plan,
            "replications": 100,
            "prediction": loss,
        }
        | {"estimate": 12.0 - gain * (12.0 - loss), "standard_error": 0.01}
        for plan, loss in exact.items()
    ]
    found = judge(group_size_schedule.claims(pd.DataFrame(rows))).set_index("id").loc["U9/follow"]
    assert (found["verdict"], found["power"]) == (verdict, power)
