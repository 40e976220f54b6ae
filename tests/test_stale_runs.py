"""The study of stale rollouts: its arms, what it holds against what, and what is a run of it."""

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from grpo_theory.exact.weights import gains_of_response
from grpo_theory.harness.sides import study_of
from simulations.runs import staleness, stalled
from simulations.runs.staleness import ARMS, CAP, FARTHEST, PLACES
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


STALE, STALLED = study_of(staleness), study_of(stalled)


@pytest.fixture(scope="module")
def quick():
    """The cell and the results of the quick study."""
    (cell,) = STALE.cells(True)
    return cell, [STALE.compute(cell.settings, np.random.default_rng(0), chunk) for chunk in range(cell.chunks)]


@pytest.fixture(scope="module")
def table(quick):
    return pd.DataFrame(STALE.table([(quick[0].settings, quick[1])], quick=True))


def test_draws_are_those_of_the_world_and_runs_those_of_the_public_simulator(quick):
    """Last draw, largest rate, a lag of 4 with the truncated ratio: the mean of its runs."""
    cell, results = quick
    problem, rate = PLACES["strong transfer"].make(3), cell.settings["rates"][-1]
    how = {
        "batch_size": 16,
        "group_size": 8,
        "steps": 64,
        "lag": 4,
        "optimiser": gt.Adam(),
        "replications": cell.settings["runs"],
    }
    seed = child_seed(seed_of(np.random.default_rng(0)), 3)
    runs = gt.simulate_training(problem, problem.theta, ARMS["truncated"], gt.Constant(rate), **how, rng=seed, workers=1)
    assert results[3][0]["key"] == ["truncated", 4, 1, 64]
    assert results[3][0]["success"][-1][3] == pytest.approx(runs.objectives.mean(), rel=1e-10)


def test_all_layouts_make_as_many_updates_of_as_many_responses(table):
    """The race in time has others: in turn there is time for three quarters of the updates."""
    courses = table[table["quantity"] == "course"]
    assert set(courses["steps"]) == {staleness.UPDATES, 32, 24}
    last = courses.groupby(["arm", "lag", "inner_steps", "steps"])["update"].max()
    assert (last.to_numpy() == last.index.get_level_values("steps")).all()
    starts = courses[courses["update"] == 0]["estimate"]
    np.testing.assert_allclose(starts, starts.iloc[0], rtol=1e-12)


def test_what_is_held_against_what(quick):
    """With one rate leads are differences of means, and limits are those of the draws' differences."""
    found = [one | {"success": one["success"][3:4]} for chunk in quick[1] for one in chunk]
    success = {tuple(one["key"]): np.array(one["success"][0]) for one in found}
    draws = quick[0].settings["draws"]
    starts = np.array([gt.objective(p, p.theta) for p in map(PLACES["strong transfer"].make, range(draws))])
    on_policy, in_stages = success["on policy", 0, 1, 64], success["clip", 0, 16, 64]
    sides = {arm: staleness.below(found, "strong transfer", draws, arm) for arm in staleness.TITLES}
    allowed = (1.0 - staleness.LOST) * on_policy + staleness.LOST * starts
    for arm, name, values in (
        ("none", "P7/lag, a quarter of the run", allowed - success["none", 16, 1, 64]),
        ("veto", "P7/stages", allowed - success["veto", 0, 16, 64]),
        ("veto", "P7/veto", in_stages - success["veto", 0, 16, 64]),
        ("clip", "P7/a lag lets the clip act", on_policy - success["clip", 1, 1, 64]),
        ("none", "P7/wall time", success["on policy", 0, 1, 24] - success["none", 1, 1, 32]),
    ):
        own, facts = sides[arm][name]
        assert own.estimate == pytest.approx(values.mean(), abs=1e-12)
        assert own.standard_error == pytest.approx(values.std(ddof=1) / np.sqrt(draws), rel=1e-9)
        assert facts["share of draws of the other sign"] == (values * values.mean() < 0.0).mean()


def test_claims_are_those_that_are_stated(table):
    claims = STALE.claims(table)
    assert len(claims) == 3 + 2 * 3 + 2
    assert {claim.statement.id for claim in claims} == set(STALE.decides) - {"P7"}
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
    (cell,) = STALLED.cells(True)
    results = [STALLED.compute(cell.settings, np.random.default_rng(0), chunk) for chunk in range(cell.chunks)]
    claims = STALLED.claims(pd.DataFrame(STALLED.table([(cell.settings, results)], quick=True)))
    assert {claim.statement.id for claim in claims} == {"P5", "P5/as many responses per update"}
    assert all(claim.control.estimate > 0.2 for claim in claims)
    assert all(claim.evidence.replications == cell.settings["draws"] for claim in claims)
