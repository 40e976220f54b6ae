"""Updates along training: the exact means are the library's, looks are at real iterates, and verdicts follow the evidence."""

from dataclasses import replace

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.evidence.reading import BoundedMean
from grpo_theory.harness.sides import joined, study_of
from grpo_theory.harness.study import Cell, cell_seed
from grpo_theory.simulate.records import simulate_iterates
from simulations.runs.worlds import DRAWS
from simulations.sequence.off_policy import Pairs, cosines
from simulations.sequence.parts import composed, random_problem
from simulations.training import looks, trained_drift
from simulations.training.looks import ARMS, LOOKED
from simulations.training.worlds import WORLDS, drawn, race_problem
from tests.made_up import judged

RUNS = {"batch_size": 8, "group_size": 4, "steps": 16, "inner_steps": 4, "replications": 5}


def drifted(end_token, seed=0):
    """A problem with three prompts, and four pairs of policies."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 2, 4, end_token, n_prompts=3, dimension=6)
    old = problem.theta + rng.normal(size=(4, 6))
    return problem, old + 0.4 * rng.normal(size=(4, 6)), old


@pytest.mark.parametrize("end_token", [None, 0])
@pytest.mark.parametrize("name", ARMS)
def test_mean_updates_are_those_of_the_library_at_any_group_size(name, end_token):
    problem, now, old = drifted(end_token)
    found = Pairs(problem, now, old).mean_updates(ARMS[name])
    for group_size in (2, 8):
        sizes = {"batch_size": 1, "group_size": group_size}
        wanted = [
            gt.gradient_mean(problem, theta, ARMS[name], **sizes, behaviour=other) for theta, other in zip(now, old, strict=True)
        ]
        np.testing.assert_allclose(found, wanted, atol=1e-13)


@pytest.mark.parametrize("end_token", [None, 0])
def test_gradients_are_those_of_the_library(end_token):
    problem, now, old = drifted(end_token)
    wanted = [gt.moments(problem, theta).gradient for theta in now]
    np.testing.assert_allclose(Pairs(problem, now, old).gradients(), wanted, atol=1e-13)


@pytest.mark.parametrize("end_token", [None, 0])
def test_clipped_tokens_and_log_ratios_by_all_responses(end_token):
    """Written out response by response and token by token; some tokens are clipped, and most are not."""
    problem, now, old = drifted(end_token)
    pairs, paths = Pairs(problem, now, old), problem.policy.paths
    clipped, moved, length = np.zeros(4), np.zeros(4), np.zeros(4)
    for i, (theta, other) in enumerate(zip(now, old, strict=True)):
        current, before = problem.at(theta), problem.at(other)
        for m in range(3):
            for k in range(paths.n_responses):
                p, right = before.probabilities[m, k] / 3.0, problem.bandit.mean_reward[m, k]
                for edge in paths.edges[k, : paths.lengths[k]]:
                    log_ratio = current.token_log_probabilities[m, edge] - before.token_log_probabilities[m, edge]
                    ratio = np.exp(log_ratio)
                    clipped[i] += p * (right * (ratio > 1.2) + (1.0 - right) * (ratio < 0.8))
                    moved[i] += p * abs(log_ratio)
                    length[i] += p
    np.testing.assert_allclose(pairs.clipped(ARMS["clip"]), clipped / length, rtol=1e-12)
    np.testing.assert_allclose(pairs.log_ratios(), moved / length, rtol=1e-12)
    assert ((clipped > 0.0) & (clipped < 0.5 * length)).all()
    assert (pairs.clipped(ARMS["none"]) == 0.0).all()


def test_on_policy_every_arm_has_the_gradient_and_lost_signs_have_not():
    problem, now, _ = drifted(None)
    pairs = Pairs(problem, now, now)
    for estimator in ARMS.values():
        np.testing.assert_allclose(cosines(pairs.mean_updates(estimator), pairs.gradients()), 1.0, rtol=1e-12)
    assert (cosines(pairs.mean_updates(ARMS["clip"], sign_is_lost=True), pairs.gradients()) < 0.9).all()


@pytest.mark.parametrize("optimiser", [gt.SGD(), gt.Adam()])
@pytest.mark.parametrize("arm", ARMS)
def test_iterates_are_those_of_the_training_runs(arm, optimiser):
    """The same bits at the end, the first from the start, and a prefix of a longer run is the shorter run."""
    problem = drifted(None)[0]
    where = (problem, problem.theta, ARMS[arm], gt.Constant(0.3))
    (path,) = simulate_iterates(*where, **RUNS, rng=3, optimiser=optimiser)
    assert path.shape == (5, 17, 6)
    assert (path[:, 0] == problem.theta).all()
    for steps in (16, 8):
        runs = gt.simulate_training(*where, **RUNS | {"steps": steps}, rng=3, optimiser=optimiser, workers=1)
        np.testing.assert_array_equal(path[:, steps], runs.theta)
    assert (np.abs(np.diff(path, axis=1)).max(axis=(1, 2)) > 0.0).all()


def test_iterates_within_a_rollout_are_one_update_apart():
    """Plain steps are the step size times an estimate: its mean over runs is the exact one of the policy reached, at |z| < 4.9.

    The second update of a rollout is of other prompts' responses than the first, so given the policy it is independent of it.
    Runs that start there see the law. The control's mean, of no ratio, is hundreds of standard errors away.
    """
    problem, step, runs = drifted(None)[0], 0.8, 1 << 14
    clip, layout = ARMS["clip"], {"batch_size": 2, "group_size": 4, "steps": 2, "inner_steps": 2}
    paths = np.concatenate(
        list(simulate_iterates(problem, problem.theta, clip, gt.Constant(step), **layout, replications=runs, rng=1))
    )
    estimates = (paths[:, 2] - paths[:, 1]) / step
    old = np.broadcast_to(problem.theta, (runs, 6))
    means = {name: Pairs(problem, paths[:, 1], old).mean_updates(ARMS[name]) for name in ("clip", "none")}
    z = {name: (errors := estimates - mean).mean(axis=0) / errors.std(axis=0) * np.sqrt(runs) for name, mean in means.items()}
    assert np.abs(z["clip"]).max() < 4.9
    assert np.abs(z["none"]).max() > 10.0


def test_rollouts_whose_updates_do_not_divide_the_steps_are_refused():
    problem = drifted(None)[0]
    with pytest.raises(ValueError, match="steps must be divisible by inner_steps = 4, got 6"):
        simulate_iterates(problem, problem.theta, "rloo", gt.Constant(0.1), **RUNS | {"steps": 6})


def test_looks_are_at_updates_after_the_first_of_their_rollouts():
    settings = {"rollouts": 3, "inner_steps": 4}
    places = np.stack([looks.places_of_looks(settings, np.random.default_rng(seed)) for seed in range(200)])
    now, old = places[:, 0].ravel(), places[:, 1].ravel()
    assert set(old) == {0, 4, 8}
    assert set(now - old) == {1, 2, 3}


def found_by_looks(steps, units):
    """Looks that point along at every step but where a test says otherwise, with a twentieth of the tokens clipped."""
    found = {name: np.ones((steps, looks.LOOKS, units)) for name in (*LOOKED, "broken")}
    return found | {name: np.full((steps, looks.LOOKS, units), 0.05) for name in ("clipped", "log ratio")}


def row_of(table, part, quantity, estimator, bin_=None):
    (only,) = [
        row
        for row in table
        if (row["part"], row["quantity"], row["estimator"]) == (part, quantity, estimator) and bin_ in (None, row.get("up to"))
    ]
    return only


def test_shares_are_means_over_problems_at_the_step_that_is_best_for_all():
    """Half of the problems point away at two of four looks at the middle step, the best; looks elsewhere do not count."""
    units = 8
    success, found = np.tile([[0.1], [0.9], [0.2]], units), found_by_looks(3, units)
    found["clip"][1, :2, ::2] = found["clip"][[0, 2]] = -1.0
    found["clipped"][1, 3, 0] = 0.01
    table = looks.summarised(success, found)
    away = row_of(table, "all", "away", "clip")
    assert (away["estimate"], away["replications"], away["at_end"]) == (0.25, units, False)
    assert away["standard_error"] == pytest.approx(np.std([0.5, 0.0] * 4, ddof=1) / np.sqrt(units))
    assert row_of(table, "all", "less", "none")["estimate"] == pytest.approx(-0.5)
    # The one look at which little is clipped is of one problem: there is no sample.
    assert not [row for row in table if row["part"] == "little clipped"]
    found["clipped"][1, 0, 1:3] = 0.015
    little, many = (row_of(looks.summarised(success, found), *at) for at in LITTLE_AND_MANY)
    assert (little["estimate"], little["replications"], little["looks"]) == (pytest.approx(1.0 / 3.0), 3, 3)
    assert (many["estimate"], many["replications"], many["looks"]) == (pytest.approx((2 / 3 + 1 / 3 + 2 * 0.5) / 8), 8, 29)


LITTLE_AND_MANY = (("little clipped", "away", "clip"), ("bin", "away", "clip", 0.05))


def test_runs_are_looked_at_where_they_were():
    """Written out for one problem and one step: the cosines at the updates drawn are those of the policies there."""
    settings = {"batch_size": 8, "group_size": 4, "rollouts": 4, "inner_steps": 4, "optimiser": "SGD"}
    settings |= {"steps": [0.3], "tried": 1, "runs": 1}
    problem, seed = drifted(None)[0], np.random.SeedSequence(4)
    success, table = looks.followed(settings, ARMS["clip"], [(problem, seed)] * 2, Pairs, np.random.default_rng(5))
    where = (problem, problem.theta, ARMS["clip"], gt.Constant(0.3))
    (path,) = simulate_iterates(*where, **RUNS | {"replications": 1}, rng=seed)
    rng, wanted = np.random.default_rng(5), []
    for _ in range(2):
        now, old = (path[0, at] for at in looks.places_of_looks(settings, rng))
        pairs = Pairs(problem, now, old)
        wanted.append(cosines(pairs.mean_updates(ARMS["none"]), pairs.gradients()).mean())
    assert row_of(table, "all", "cosine", "none")["estimate"] == pytest.approx(np.mean(wanted), rel=1e-12)
    np.testing.assert_allclose(success, gt.objective(problem, path[0, -1]), rtol=1e-13)


def test_limits_of_a_bounded_mean_are_hoeffdings():
    """Of shares that are all 0 the upper limit is 1 - (level/2)^(1/n); Clopper and Pearson's limits lie inside."""
    none = BoundedMean(0.0, 0.05, replications=512)
    assert none.interval(1e-3) == (0.0, pytest.approx(1.0 - (5e-4) ** (1.0 / 512)))
    some = BoundedMean(0.1, 0.05, replications=100)
    exact = gt.evidence.Share(0.1, 0.05, replications=100)
    (low, high), (inner_low, inner_high) = some.interval(1e-3), exact.interval(1e-3)
    assert low < inner_low < 0.1 < inner_high < high
    assert BoundedMean(1.0, 0.05, replications=10).interval(1e-3)[1] == 1.0
    assert BoundedMean(1e-5, 0.05, replications=320).interval(1e-7)[0] == 0.0, "no number is so small that it is excluded"
    assert some.half_width(1e-3, 400) < some.half_width(1e-3, 100)


def test_limits_of_a_bounded_mean_cover_a_skewed_law():
    """Four looks at each of 50 runs that point away with probability 0.03: at 5% at most 5% of the intervals miss."""
    rng = np.random.default_rng(0)
    means = rng.binomial(4, 0.03, size=(4000, 50)).mean(axis=1) / 4.0
    missed = [
        not low <= 0.03 <= high for low, high in (BoundedMean(mean, 0.05, replications=50).interval(0.05) for mean in means)
    ]
    assert np.mean(missed) <= 0.05


def test_grids_are_centred_where_the_pilots_found_the_best_steps():
    steps = WORLDS["two"].steps("SGD", 4, 2)
    assert (len(steps), steps[3]) == (9, 6.0)
    np.testing.assert_allclose(np.diff(np.log2(steps)), 1.0)
    assert WORLDS["two"].steps("Adam", 16, 2)[3] == pytest.approx(0.15)


def test_problems_are_drawn_anew_and_one_that_is_alone_is_not():
    rewards = [problem.bandit.mean_reward for problem, _ in drawn(WORLDS["four"].make, np.random.SeedSequence(1), 6)]
    assert len(np.unique(np.reshape(rewards, (6, -1)), axis=0)) == 6
    again = next(drawn(WORLDS["four"].make, np.random.SeedSequence(1), 1))
    np.testing.assert_array_equal(again[0].bandit.mean_reward, rewards[0])
    (first, one), (second, other) = drawn(WORLDS["stopping"].make, np.random.SeedSequence(1), 2)
    np.testing.assert_array_equal(first.bandit.mean_reward, race_problem("stopping").bandit.mean_reward)
    np.testing.assert_array_equal(first.bandit.mean_reward, second.bandit.mean_reward)
    assert one.spawn_key != other.spawn_key


CASE = trained_drift.cases(True)[0]


def run(case, arms=None):
    """Return what the run finds, with other arms in the place of some."""
    cell = trained_drift.trained.cell(case)
    seed, order = cell_seed("trained_drift", Cell(cell.settings), 0), cell.settings["arms"]
    places = [order.index((arms or {}).get(arm, arm)) for arm in order]
    return joined([trained_drift.trained(np.random.default_rng(seed), place, **cell.settings) for place in places])


def test_every_claim_of_the_study_is_made_and_its_control_has_power():
    found = judged([trained_drift.pointing, trained_drift.ending], run(CASE), CASE)
    assert set(found.index) == set(study_of(trained_drift).decides)
    assert (found["control"] == "refuted").all()
    assert set(found["problem"]) == {"64 problems of 2 tokens, 6 parameters, 16 rollouts, Adam, m = 16"}


def test_an_arm_is_ahead_of_itself_by_nothing():
    """With no ratio in the clip's place all differences are 0: the arms see the same draws, whatever their place."""
    found = run(CASE | {"units": 4}, {"clip": "none"})
    sides = trained_drift.ending(found, **{name: CASE[name] for name in ("world", "optimiser", "inner_steps")})
    np.testing.assert_allclose([own.estimate for own, _ in sides.values()], 0.0, atol=1e-15)
    assert len(sides) == 6


def test_twice_the_step_is_the_next_of_the_grid():
    """Success that only the step beyond the best has, or the next, is that at twice the best step, or at four times."""
    reached = np.tile([[0.1], [0.2], [0.3], [0.9], [0.2], [0.1], [0.1], [0.1], [0.1]], 24)
    found = {"success": np.stack([reached] * 3), "starts": np.full((3, 24), 0.05)}
    where = {name: CASE[name] for name in ("world", "optimiser", "inner_steps")}
    best, twice, four = ([facts for _, facts in trained_drift.ending(found, **where).values()])[:3]
    np.testing.assert_allclose([facts["success, clip"] for facts in (best, twice, four)], [0.9, 0.2, 0.1])
    assert twice["step, clip"] == 2.0 * best["step, clip"]
    stays = trained_drift.ending(found, **where, rival="start")
    assert stays["T8/clip, twice the step"][0].estimate == pytest.approx(0.15)


def test_the_arms_differ_in_ratio_and_clip_alone():
    kernels = {estimator.advantage.function for estimator in ARMS.values()}
    assert len(kernels) == 1
    assert [(one.ratio.name, one.clip.name) for one in ARMS.values()] == [
        ("token", "by sign"),
        ("none", "none"),
        ("trajectory", "upper only"),
    ]
    assert {(one.clip.low, one.clip.high) for one in ARMS.values()} == {(0.2, 0.2)}
    assert replace(ARMS["clip"], name="same").aggregation.name == composed("rloo", "none").aggregation.name == "sum"


def test_a_cell_for_every_length_optimiser_and_number_of_updates():
    full = [trained_drift.trained.cell(case) for case in trained_drift.cases(False)]
    assert all(cell.settings["units"] >= DRAWS for cell in full)
    assert {cell.settings["inner_steps"] for cell in full} == {2, 4, 16}
    assert all(cell.settings["batch_size"] % cell.settings["inner_steps"] == 0 for cell in full)
