"""The study of stale rollouts: its arms, what it holds against what, and what is a run of it."""

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from grpo_theory.exact.weights import gains_of_response
from grpo_theory.harness.forms import study_of
from simulations.runs import staleness, stalled
from simulations.runs.stale_arms import ARMS, CAP, FARTHEST
from simulations.runs.stale_places import PLACES
from simulations.seeds import child_seed, seed_of

RATIOS = np.array([0.9, 4.0, 0.1, 1.0])


def weights(arm):
    """Return what the arm's tokens weigh, for a positive and for a negative advantage."""
    return gains_of_response(ARMS[arm], np.log(RATIOS)[:, None])[:, :, 0]


def test_arms_weigh_tokens_as_they_say():
    np.testing.assert_allclose(weights("none"), 1.0)
    np.testing.assert_allclose(weights("clip"), [[0.9, 0.0, 0.1, 1.0], [0.9, 4.0, 0.0, 1.0]])
    np.testing.assert_allclose(weights("truncated"), np.full((2, 4), RATIOS.prod()), atol=1e-12)
    np.testing.assert_allclose(weights("veto"), [RATIOS, [0.9, 4.0, 0.0, 0.0]])
    np.testing.assert_allclose(weights("descends"), -1.0)
    large = gains_of_response(ARMS["truncated"], np.log(np.full((3, 1), 1.5)))
    np.testing.assert_allclose(large, CAP)
    beyond = gains_of_response(ARMS["veto"], np.log([[FARTHEST * 1.01], [1.0]]))
    np.testing.assert_allclose(beyond[:, :, 0], [[0.0, 1.0], [0.0, 0.0]])


def test_on_policy_all_arms_are_one():
    problem = gt.gallery.problem("sequence-shared")
    at = {"batch_size": 1, "group_size": 3}
    means = {arm: gt.gradient_mean(problem, problem.theta, ARMS[arm], **at) for arm in ARMS}
    for arm in ("clip", "truncated", "veto"):
        np.testing.assert_allclose(means[arm], means["none"], atol=1e-14)
    np.testing.assert_allclose(means["descends"], -means["none"], atol=1e-14)


@pytest.fixture(scope="module")
def found():
    """The settings and results of the quick study, with few rates."""
    cell = staleness.cells(quick=True)[0]
    settings = dict(cell.settings) | {"draws": 6, "rates": [0.5, 1.0, 2.0]}
    return settings, [staleness.simulate(settings, np.random.default_rng(0), chunk) for chunk in range(cell.chunks)]


@pytest.fixture(scope="module")
def table(found):
    return pd.DataFrame(staleness.rows(*found))


def test_draws_are_those_of_the_world_and_runs_those_of_the_public_simulator(found):
    """Fifth draw, largest rate, a lag of 4 with the truncated ratio: the mean of its runs."""
    settings, results = found
    problem = PLACES["strong transfer"].make(5)
    how = {"batch_size": 16, "group_size": 8, "steps": 64, "lag": 4, "optimiser": gt.Adam(), "replications": settings["runs"]}
    seed = child_seed(seed_of(np.random.default_rng(0)), 5)
    runs = gt.simulate_training(problem, problem.theta, ARMS["truncated"], gt.Constant(2.0), **how, rng=seed, workers=1)
    assert results[3][0]["lag"] == 4
    assert results[3][0]["success"][2][5] == pytest.approx(runs.objectives.mean(), rel=1e-10)


def test_all_layouts_make_as_many_updates_of_as_many_responses(table):
    """The race in time has others: in turn there is time for three quarters of the updates."""
    assert set(table["steps"]) == {staleness.UPDATES, 32, 24}
    courses = table[table["quantity"] == "course"]
    last = courses.groupby(["arm", "lag", "inner_steps", "steps"])["update"].max()
    assert (last.to_numpy() == last.index.get_level_values("steps")).all()
    starts = courses[courses["update"] == 0]["estimate"]
    np.testing.assert_allclose(starts, starts.iloc[0], rtol=1e-12)


def test_what_is_held_against_what(found):
    """With one rate leads are differences of means, and limits are those of the draws' differences."""
    settings, results = found
    one = [[layout | {"success": layout["success"][:1], "course": layout["course"][:1]} for layout in arm] for arm in results]
    table = pd.DataFrame(staleness.rows(settings | {"rates": [0.5]}, one))
    at = table[table["quantity"] != "course"].set_index(["quantity", "arm", *staleness.Layout._fields])
    success = {
        (arm, *(each[name] for name in staleness.Layout._fields)): np.array(each["success"][0])
        for arm, own in zip(settings["arms"], one, strict=True)
        for each in own
    }
    on_policy = success["on policy", 0, 1, 64]
    starts = np.array([gt.objective(p, p.theta) for p in (PLACES["strong transfer"].make(draw) for draw in range(6))])
    for key in (("none", 16, 1, 64), ("veto", 0, 16, 64)):
        below = on_policy - success[key]
        allowed = below - staleness.LOST * (on_policy - starts)
        for name, values in (("on policy", below), ("allowed", allowed)):
            row = at.loc[(f"below {name}", *key)]
            assert row["estimate"] == pytest.approx(values.mean(), abs=1e-12)
            assert row["standard_error"] == pytest.approx(values.std(ddof=1) / np.sqrt(6), rel=1e-9)
            assert row["other_sign"] == (values * values.mean() < 0.0).mean()
    assert at.loc[("below clip", "clip", 0, 16, 64), "estimate"] == 0.0
    assert at.loc[("below in turn", "on policy", 0, 1, 24), "estimate"] == 0.0


def test_claims_are_those_that_are_stated(table):
    claims = list(staleness.claims(table))
    assert len(claims) == 3 + 2 * 3 + 2
    assert {claim.statement.id for claim in claims} == set(study_of(staleness).decides) - {"P7"}
    assert all(claim.control.estimate > 0.3 for claim in claims), "an arm that descends is far below"
    lost = {claim.setting: claim.facts["share of the gain lost"] for claim in claims if "quarter" in claim.statement.id}
    assert lost["strong transfer, no ratio"] > lost["strong transfer, response's ratio, truncated"] + 0.1


def test_stalled_runs_go_on_from_where_they_are_side_by_side_as_alone():
    problem, rng = stalled.WORLDS["few prompts"].problem(3), np.random.default_rng(0)
    starts = problem.theta + 0.1 * rng.normal(size=(3, problem.theta.size))
    together = stalled.trained(problem, starts, "grpo", (16, 256), [1.0, 9.0], 2048, np.random.SeedSequence(4))
    how = {"batch_size": 16, "group_size": 16, "steps": 8, "replications": 3, "rng": np.random.SeedSequence(4), "workers": 1}
    for rate, own in zip((1.0, 9.0), together, strict=True):
        np.testing.assert_allclose(own, gt.simulate_training(problem, starts, "grpo", gt.Constant(rate), **how).theta, rtol=1e-9)


def test_the_stalled_study_holds_ways_against_groups_of_16_draw_by_draw():
    cell = stalled.cells(quick=True)[0]
    results = [stalled.simulate(cell.settings, np.random.default_rng(0), chunk) for chunk in range(cell.chunks)]
    claims = list(stalled.claims(pd.DataFrame(stalled.rows(cell.settings, results))))
    assert {claim.statement.id for claim in claims} == {"P5", "P5/as many responses per update"}
    assert all(claim.control.estimate > 0.2 for claim in claims)
    assert all(claim.evidence.replications == cell.settings["draws"] for claim in claims)
