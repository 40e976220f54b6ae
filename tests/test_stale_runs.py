"""The study of stale rollouts: its arms, what it holds against what, and what is a run of it."""

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from grpo_theory.exact.weights import gains_of_response
from simulations.runs import staleness
from simulations.runs.stale_arms import ARMS, CAP, FARTHEST
from simulations.runs.stale_places import PLACES

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
def table():
    """The table of the quick study, with few runs and learning rates."""
    cell = staleness.cells(quick=True)[0]
    settings = dict(cell.settings) | {"runs": 12, "curve_runs": 8, "tuning_runs": 4, "rates": [0.5, 1.0, 2.0]}
    results = [staleness.simulate(settings, np.random.default_rng(0), chunk) for chunk in range(cell.chunks)]
    return pd.DataFrame(staleness.rows(settings, results))


def test_all_layouts_make_as_many_updates_of_as_many_responses(table):
    """The race in time has others: in turn there is time for three quarters of the updates."""
    assert set(table["steps"]) == {staleness.UPDATES, 32, 24}
    rollouts = table[table["quantity"] == "course"].groupby(["arm", "lag", "inner_steps", "steps"])["update"].max()
    assert (rollouts.to_numpy() == rollouts.index.get_level_values("steps")).all()
    starts = table[(table["quantity"] == "course") & (table["update"] == 0)]["estimate"]
    np.testing.assert_allclose(starts, starts.iloc[0], rtol=1e-14)


def test_what_is_held_against_what(table):
    at = table[table["quantity"] != "course"].set_index(["quantity", "arm", *staleness.Layout._fields])["estimate"]
    on_policy, start = at[("success", "on policy", 0, 1, 64)], PLACES["strong transfer"].make()
    gain = on_policy - float(gt.objective(start, start.theta))
    for arm, lag, inner in (("none", 16, 1), ("veto", 0, 16)):
        below = on_policy - at[("success", arm, lag, inner, 64)]
        assert at[("below on policy", arm, lag, inner, 64)] == pytest.approx(below, abs=1e-12)
        assert at[("below allowed", arm, lag, inner, 64)] == pytest.approx(below - staleness.LOST * gain, abs=1e-12)
    assert at[("below clip", "clip", 0, 16, 64)] == 0.0
    assert at[("below in turn", "on policy", 0, 1, 24)] == 0.0


def test_claims_are_those_that_are_stated(table):
    claims = list(staleness.claims(table))
    assert len(claims) == 3 + 2 * 3 + 2
    assert {claim.statement.id for claim in claims} == {
        "P7/stages",
        "P7/veto",
        "P7/a lag lets the clip act",
        "P7/lag, a sixteenth of the run",
        "P7/lag, a quarter of the run",
        "P7/wall time",
    }
    assert all(claim.control.estimate > 0.3 for claim in claims), "an arm that descends is far below"
    lost = {claim.setting: claim.facts["share of the gain lost"] for claim in claims if "quarter" in claim.statement.id}
    assert lost["strong transfer, no ratio"] > lost["strong transfer, response's ratio, truncated"] + 0.1


def test_intervals_count_the_choice_of_the_learning_rate_of_both_sides(table):
    """What is added is one number a world: to a difference twice, to one from which a loss is allowed a little less."""
    at = table[table["quantity"] != "course"].set_index(["quantity", "arm", *staleness.Layout._fields])["standard_error"]
    own, itself, allowed = (
        at[(quantity, "on policy", 0, 1, 64)] ** 2 for quantity in ("success", "below on policy", "below allowed")
    )
    # An arm less itself has no spread of runs, so that two choices are all there is.
    added = itself / 2.0
    assert added > 0.0
    lost = staleness.LOST
    assert allowed == pytest.approx(lost**2 * (own - added) + (1.0 + (1.0 - lost) ** 2) * added, rel=1e-9)
