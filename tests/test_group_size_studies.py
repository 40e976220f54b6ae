"""The studies of the group size: the control variate, and verdicts that follow the evidence."""

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from grpo_theory.evidence import judge
from grpo_theory.exact import directional_derivatives
from grpo_theory.harness.sides import claim_of
from simulations.training import group_size
from simulations.training.cases import CASE_AT, case_law, case_problem, case_steps
from simulations.training.controlled import controlled, controlled_objectives, guide

FAR_CASE = CASE_AT["kl-linear", "Constant(2)"]


def test_the_control_has_mean_zero_and_takes_most_of_the_variance(seed):
    """|z| < 4.9; the drift that it subtracts is hundreds of standard errors, so an error of some percent in it would show."""
    problem, steps, runs = case_problem(FAR_CASE), case_steps(FAR_CASE, 6), 512
    laws = [case_law(FAR_CASE, n) for n in (3, 6)]
    plain, parts = controlled_objectives(
        problem,
        [guide(law) for law in laws],
        steps,
        [2, 4, 4, 8, 2, 4],
        budget=256,
        runs=runs,
        seed=np.random.SeedSequence(seed(1)),
    )
    for part in parts:
        error = part.std(axis=0) / np.sqrt(runs)
        assert (np.abs(part.mean(axis=0)) < 4.9 * error).all()
    once, twice, thrice = plain - parts[0], controlled(plain, parts[:2]), controlled(plain, parts)
    assert (once.var(axis=0) < 0.1 * plain.var(axis=0)).all()
    assert (twice.var(axis=0) < 0.7 * once.var(axis=0)).all()
    assert (thrice.var(axis=0) < 0.2 * twice.var(axis=0)).all()
    error = parts[0].std(axis=0) / np.sqrt(runs)
    path = case_law(FAR_CASE, 6).path
    drift = sum(
        step * directional_derivatives(problem, theta, slope[None])[0]
        for step, theta, slope in zip(steps, path, laws[1].slopes, strict=False)
    )
    assert 0.05 * drift > 4.9 * error[1]


def test_the_control_does_no_harm_where_it_says_nothing_and_moves_no_mean(seed):
    """Its multiple comes from the other half of the runs: noise of its own loses all weight, a sign turned round takes -1.

    With the multiple of the same runs the mean of few of them is off: by 0.32 with 8 runs of skewed data.
    """
    rng = np.random.default_rng(seed(2))
    values, control = rng.standard_normal((2, 4000, 1))
    zero = np.zeros_like(values)
    assert controlled(values, np.stack([zero, zero, zero])).var() == pytest.approx(values.var())
    assert controlled(values, np.stack([zero, 10.0 * control])).var() < 1.02 * values.var()
    assert controlled(values - control, np.stack([zero, -control, zero])).var() == pytest.approx(values.var(), rel=0.02)
    noise = rng.standard_normal((100_000, 8, 1))
    skewed, control = noise**2 - 1.0, noise * np.abs(noise)
    means = controlled(skewed, np.stack([np.zeros_like(noise), control])).mean(axis=(-2, -1))
    assert abs(means.mean()) < 4.9 * means.std() / np.sqrt(100_000)
    centred = control - control.mean(axis=1, keepdims=True)
    share = (centred * skewed).sum(axis=1, keepdims=True) / (centred**2).sum(axis=1, keepdims=True)
    assert (skewed - share * control).mean() < -0.25


def test_plain_objectives_are_those_of_ordinary_training(seed):
    problem, steps = case_problem(FAR_CASE), case_steps(FAR_CASE, 1)
    plain, _ = controlled_objectives(
        problem, [guide(case_law(FAR_CASE, 1))], steps, [4], budget=64, runs=8, seed=np.random.SeedSequence(5)
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


WHERE = {"problem": "kl-linear", "schedule": "Constant(2)", "budget": 1024, "quick": False}
FAR_SETTINGS = dict(group_size.trained.cell(WHERE).settings)


@pytest.fixture(scope="module")
def far_table():
    """The losses of one case, the simulated ones replaced by the law's, known to a thousandth."""
    found = group_size.trained(np.random.default_rng(1), 0, **FAR_SETTINGS | {"runs": 2})
    table = group_size.measured(found, "kl-linear", "Constant(2)", 1024).reset_index()
    return table.assign(estimate=table["prediction"], standard_error=1e-3 * table["prediction"].abs(), replications=512)


@pytest.fixture(autouse=True)
def made_up_losses(monkeypatch):
    """A table in the place of a run's results is that of its losses."""
    measured = group_size.measured
    at = ["checkpoint", "group_size"]
    given = lambda found, *where: found.set_index(at) if isinstance(found, pd.DataFrame) else measured(found, *where)  # noqa: E731
    monkeypatch.setattr(group_size, "measured", given)


def judged_in(check, cases, found):
    """Return the verdicts of a check in some cases whose runs returned `found`."""
    stated = {one.id: one for one in check.statements}
    rows = [row for case in cases for row in check.rows(case, lambda variant: {"found": found})]
    return judge([claim_of(stated[row["statement"]], row) for row in rows]) if rows else pd.DataFrame({"id": []})


def judged(table):
    """Return the verdicts on the printed size, on noise and on the law."""
    sizes = [WHERE | {"group_size": size} for size in group_size.GROUP_SIZES]
    return pd.concat([judged_in(group_size.printed, [WHERE], table), judged_in(group_size.laws, sizes, table)])


def verdicts(table):
    """Return the verdicts by statement, those of several group sizes as one set."""
    found = judged(table)
    return {name: set(part["verdict"]) for name, part in found.groupby("id")}


def test_verdicts_on_the_printed_group_size_follow_the_evidence(far_table):
    found = verdicts(far_table)
    assert found.pop("U9/printed") == {"refuted"}
    assert found == {name: {"confirmed"} for name in ("U9/policy-law", "U9/second order", "U9/noise-costs")}
    rows = judged(far_table).set_index("id")
    assert rows["power"].all()
    assert "n = 32" in rows.loc["U9/printed", "facts"]
    assert len(rows.loc["U9/policy-law"]) == len(group_size.GROUP_SIZES)
    best_is_two = far_table["estimate"].where(far_table["group_size"] != 2, 0.5 * far_table["estimate"])
    assert verdicts(far_table.assign(estimate=best_is_two))["U9/printed"] == {"confirmed"}
    assert verdicts(far_table.assign(estimate=1.1 * far_table["estimate"]))["U9/policy-law"] == {"confirmed"}
    assert verdicts(far_table.assign(estimate=1.3 * far_table["estimate"]))["U9/policy-law"] == {"refuted"}
    assert verdicts(far_table.assign(estimate=-far_table["estimate"]))["U9/noise-costs"] == {"refuted"}


def test_the_second_order_says_where_the_first_applies(far_table):
    """Up to a tenth of it the first is trusted, up to two fifths the sum of both. Where it is not computed there is no row."""
    sizes = len(group_size.GROUP_SIZES)
    for share, counts in ((0.09, (sizes, 0, sizes)), (-0.3, (0, sizes, sizes)), (0.5, (0, sizes, 0)), (np.nan, (0, 0, 0))):
        table = far_table.assign(second_order=share * far_table["prediction"].abs())
        found = judged(table)
        assert tuple((found["id"] == law.id).sum() for law in group_size.LAWS) == counts, share
    both = table.assign(second_order=-0.3 * table["prediction"], estimate=0.7 * table["estimate"])
    found = verdicts(both)
    assert (found["U9/policy-law, beyond"], found["U9/second order"]) == ({"refuted"}, {"confirmed"})


def at_two_budgets(table, power=1.0, **changes):
    scale = 4.0**-power
    larger = table.assign(**{name: scale * table[name] for name in ("estimate", "standard_error", "prediction")})
    for size, factor in changes.items():
        at = larger["group_size"] == int(size[1:])
        larger.loc[at, "estimate"] *= factor
    pair = WHERE | {"other": "Constant(2)", "later": 4096}
    sizes = [pair | {"group_size": size} for size in group_size.GROUP_SIZES]
    found = {"before": table, "after": larger}
    both = [judged_in(group_size.carried, [pair], found), judged_in(group_size.one_curve, sizes, found)]
    return pd.concat(both).set_index(["id", "problem"])


def test_the_best_group_size_is_carried_to_another_budget(far_table):
    """What counts is what the chosen size loses there: its own factor changes that, and a better rival, but no common factor."""
    where = ("U9/budgets", "kl-linear, Constant(2), from N = 1024 to 4096")
    for changes, verdict in (
        ({}, "confirmed"),
        ({"power": 0.5}, "confirmed"),
        ({"G8": 1.6}, "refuted"),
        ({"G64": 0.3}, "refuted"),
    ):
        row = at_two_budgets(far_table, **changes).loc[where]
        assert (row["verdict"], row["control"]) == (verdict, "refuted"), changes
        assert "G chosen = 8" in row["facts"]
        assert "G of the control = 128" in row["facts"]
