"""Updates along training: the exact means are the library's, looks are at real iterates, and verdicts follow the evidence."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import grpo_theory as gt
from grpo_theory.evidence.reading import BoundedMean
from grpo_theory.harness.sides import joined
from grpo_theory.problem.gallery import KINDS
from grpo_theory.simulate.records import simulate_iterates
from simulations.length import clipped_responses, drifts, log_ratios, ratios_by_length, score_power
from simulations.sequence.off_policy import Pairs, cosines
from simulations.sequence.parts import random_problem
from simulations.training import looks, trained_drift
from simulations.training.learned_drift import NETWORKS, LearnedPairs
from simulations.training.looks import ARMS, LOOKED

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


CASE = trained_drift.cases(True)[0]


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


@pytest.fixture(scope="module")
def network_drifted():
    """A network on a tree, with two current policies and the two that sampled."""
    rng = np.random.default_rng(5)
    problem = NETWORKS["2 tokens, width 4"].problem(rng)
    theta, behaviour = problem.theta + 0.3 * rng.normal(size=(2, 2, problem.policy.dimension))
    return problem, theta, behaviour


def test_gradients_are_those_of_the_current_policies(network_drifted):
    problem, theta, behaviour = network_drifted
    expected = [gt.moments(problem, one).gradient for one in theta]
    np.testing.assert_allclose(LearnedPairs(problem, theta, behaviour).gradients(), expected, atol=1e-14)


@pytest.mark.parametrize("name", LOOKED)
def test_mean_updates_are_those_of_the_exact_law(network_drifted, name):
    """Responses of a group of two, drawn by the behaviour; the mean is the same at every group size."""
    problem, theta, behaviour = network_drifted
    bandit = gt.Bandit((problem.bandit.mean_reward > 0.5).astype(float))
    sure = gt.Problem(bandit, problem.policy, theta=problem.theta)
    found = LearnedPairs(sure, theta, behaviour).mean_updates(LOOKED[name])
    for one, now, old in zip(found, theta, behaviour, strict=True):
        law = gt.gradient_mean(sure, now, LOOKED[name], batch_size=1, group_size=2, behaviour=old)
        np.testing.assert_allclose(one, law, atol=1e-12)


CHAIN = gt.TokenChain([[0, 1], [0, 2], [1, 0]], 6, end_token=0, starts=[0, 1])
THETA = np.array([0.0, 0.3, 0.2, 0.0, -0.1, 0.4])
MOVED = THETA + np.array([0.3, -0.1, 0.2, 0.5, -0.4, 0.1])


@pytest.fixture(scope="module")
def point():
    return gt.Problem(gt.StateRewards([0.0, 1.0, 0.5]), CHAIN).at(THETA)


@pytest.fixture(scope="module")
def listed(point):
    """Probabilities (M, K) of the listed twin's responses, and the logs of their ratios."""
    policy = gt.Problem(point.bandit, CHAIN).listed().policy
    before, after = (policy.probabilities(theta) for theta in (THETA, MOVED))
    return before, np.log(after / before)


def test_the_characteristic_function_is_that_of_listed_responses(point, listed):
    chances, logs = listed
    u = np.array([0.1, 1.0, 7.0])
    expected = np.array([(chances * np.exp(1j * one * logs)).sum(axis=1).mean() for one in u])
    assert log_ratios.characteristic(point, MOVED, u) == pytest.approx(expected, abs=1e-12)
    assert log_ratios.drifts(point, MOVED) == pytest.approx(-(chances * logs).sum(axis=1), rel=1e-12)


def test_the_share_within_the_clip_is_that_of_listed_responses(point, listed):
    chances, logs = listed
    low, high = (norm.cdf((np.log(end) - logs) / log_ratios.BLUR) for end in log_ratios.WINDOW)
    expected = (chances * (high - low)).sum(axis=1).mean()
    assert 0.1 < expected < 0.9
    assert log_ratios.share_within(point, MOVED) == pytest.approx(expected, abs=1e-5)


def test_limit_laws_are_normal_and_mixed_over_an_exponential_length(point, monkeypatch):
    nats = np.array([0.5, 3.0])
    monkeypatch.setattr(log_ratios, "drifts", lambda point, theta: nats)

    def normal(t):
        low, high = norm.cdf(np.log(log_ratios.WINDOW), loc=-t, scale=np.sqrt(2.0 * t))
        return high - low

    mixed = [quad(lambda t, d=d: normal(t) * np.exp(-t / d) / d, 1e-9, 60.0 * d, limit=400, points=[0.01, 0.1])[0] for d in nats]
    assert log_ratios.normal_share(point, MOVED) == pytest.approx(np.mean([normal(d) for d in nats]), rel=1e-12)
    assert log_ratios.stopped_share(point, MOVED) == pytest.approx(np.mean(mixed), rel=1e-5)


def test_a_cosine_is_freed_of_what_noise_adds_to_the_length():
    """By 2,000 means: the plain cosine is too small, and the standard error is the spread."""
    rng, mean, gradient = np.random.default_rng(1), np.array([1.0, 0.5, 0.0, 0.0]), np.array([2.0, 0.0, 0.0, 0.0])
    covariance = np.diag([0.02, 0.01, 0.03, 0.02])
    means = rng.multivariate_normal(mean, covariance, 2_000)
    found = np.array([clipped_responses.cosine(one, covariance, gradient) for one in means])
    exact = mean[0] / np.linalg.norm(mean)
    assert found[:, 0].mean() == pytest.approx(exact, abs=0.01)
    assert np.median(found[:, 1]) == pytest.approx(found[:, 0].std(), rel=0.15)
    assert (means[:, 0] / np.linalg.norm(means, axis=1)).mean() < exact - 0.02
    assert np.isnan(clipped_responses.cosine(0.01 * mean, covariance, gradient)[0])


def test_what_is_lost_to_another_estimator_has_the_error_of_a_quotient():
    rng = np.random.default_rng(2)
    gain = rng.normal(1.0, 0.3, size=(2, 400)) + rng.normal(0.0, 0.3, 400)
    power = gain**2 + rng.normal(1.0, 0.05, size=(2, 400))
    observations = np.zeros((2, 400, 4))
    observations[..., 2], observations[..., 3] = power, gain
    simulation = gt.GradientSimulation.of(("one", "other"), observations, 1.0)
    value, error = clipped_responses.lost(simulation, "one", "other")
    efficiency = gain.mean(axis=1) ** 2 / power.mean(axis=1)
    assert value == pytest.approx(1.0 - efficiency[0] / efficiency[1])
    index = rng.integers(0, 400, size=(2_000, 400))
    again = gain[:, index].mean(axis=2) ** 2 / power[:, index].mean(axis=2)
    assert error == pytest.approx((again[0] / again[1]).std(), rel=0.1)


def test_short_responses_have_the_efficiencies_of_their_listed_twin(point):
    """Simulated token by token, and enumerated: what is cut, dropped, and raised to one over the length."""
    problem = gt.Problem(point.bandit, CHAIN, theta=THETA)
    found = clipped_responses.measured(problem, point, MOVED, np.random.SeedSequence(3), 400)
    listed, sizes = problem.listed(), {"batch_size": clipped_responses.BATCH, "group_size": clipped_responses.GROUP}
    for name in ("cut", "dropped above", "dropped outside", "geometric"):
        law = gt.gradient_law(listed, MOVED, clipped_responses.SIMULATED[name], behaviour=THETA, **sizes)
        for quantity, exact in (("efficiency", np.copysign(law.efficiency, law.cosine)), ("cosine", law.cosine)):
            estimate, error = found[name][quantity]
            assert abs(estimate - exact) < 4.5 * error + 1e-3, (name, quantity)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_task_has_the_success_rate_that_is_asked_for(kind):
    for rate in (0.55, 0.7):
        problem = KINDS[kind](32, rate)
        assert problem.bandit.prompt_weights @ gt.moments(problem, problem.theta).value == pytest.approx(rate, abs=1e-9)


def test_a_short_walk_has_the_best_sizes_of_its_listed_twin():
    """At 8 tokens all walks can be listed, and efficiencies enumerated."""
    problem = gt.Problem(
        gt.StateRewards([0.0, 0.0, 1.0]), gt.TokenChain([[0, 1], [0, 2], [-1, -1]], 8), theta=[0.0, 0.3, 0.2, 0.0, 0, 0]
    )
    listed = problem.listed()
    for size in (2, 16):
        sizes = {"batch_size": 1024 // size, "group_size": size}
        both = [gt.efficiency(one, problem.theta, "trl_grpo_loss", **sizes) for one in (problem, listed)]
        assert both[0] == pytest.approx(both[1], rel=1e-11)


def test_the_growth_of_a_ratios_second_moment_is_that_of_a_matrix_power():
    """By the powers of the matrix of sums of p^2/p_0, three tokens from one another."""
    growth, eigenvalue, _ = score_power.growth("bigram text", 0.55, length=64)
    assert growth == pytest.approx(eigenvalue, rel=1e-12)
    average, same, _ = score_power.growth("bigram text", 0.55, over_states=True, length=64)
    assert same == eigenvalue
    assert abs(average - eigenvalue) > 1e-9
    short, eigenvalue, _ = score_power.growth("bigram text", 0.55, length=3)
    assert abs(short / eigenvalue - 1.0) > 1e-9  # the first state is not forgotten yet


def test_a_drift_is_as_long_as_it_is_said_to_be():
    """The divergence of a response, over the listed twin's responses."""
    chain = gt.TokenChain([[0, 1], [0, 2], [1, 0]], 6, end_token=0, starts=[0, 1])
    problem = gt.Problem(gt.StateRewards([0.0, 1.0, 0.5]), chain, theta=[0.0, 0.3, 0.2, 0.0, -0.1, 0.4])
    point = problem.at(problem.theta)
    theta = drifts.drifted(point, 0.3, 1)
    listed = gt.Problem(point.bandit, chain).listed()
    before, after = (listed.policy.probabilities(one) for one in (point.theta, theta))
    assert (before * np.log(before / after)).sum(axis=1).mean() == pytest.approx(0.3, rel=1e-9)


def test_an_update_that_points_back_counts_below_nothing():
    assert drifts.ahead(SimpleNamespace(efficiency=0.4, cosine=-0.6)) == -0.4
    found = joined([ratios_by_length.laws("think until sure", 64, 3)])
    own = {(row["direction"], row["ratio"]): row["estimate"] for row in ratios_by_length.efficiencies(found)}
    lost = [1.0 - own[d, "token, clipped"] / own[d, "token"] for d in range(3)]
    assert ratios_by_length.clip(found)[0] == pytest.approx(lost)
    behind = [np.log(own[d, "token"] / own[d, "trajectory"]) for d in range(3)]
    assert ratios_by_length.whole(found)[0] == pytest.approx(behind)
