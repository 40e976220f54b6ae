"""Updates along training: the exact means are the library's, looks are at real iterates, and verdicts follow the evidence."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import grpo_theory as gt
from grpo_theory.evidence.reading import BoundedMean
from grpo_theory.harness.study import joined
from grpo_theory.simulate.training import StepGrid
from simulations.length import clipped_responses, drifts, log_ratios, ratios_by_length, score_power
from simulations.sequence.off_policy import Pairs
from simulations.sequence.parts import random_problem
from simulations.training import looks
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
def test_mean_updates_and_gradients_are_those_of_the_library(name, end_token):
    problem, now, old = drifted(end_token)
    pairs = Pairs(problem, now, old)
    sizes = {"batch_size": 1, "group_size": 8}
    for i, found in enumerate(pairs.mean_updates(pairs.gains(ARMS[name]))):
        wanted = gt.gradient_mean(problem, now[i], ARMS[name], **sizes, behaviour=old[i])
        np.testing.assert_allclose(found, wanted, atol=1e-13)
    np.testing.assert_allclose(pairs.gradients(), [gt.moments(problem, theta).gradient for theta in now], atol=1e-13)


@pytest.mark.parametrize("end_token", [None, 0])
def test_clipped_tokens_and_log_ratios_by_all_responses(end_token):
    """Written out response by response and token by token; some tokens are clipped, and most are not."""
    problem, now, old = drifted(end_token)
    pairs, paths = Pairs(problem, now, old), problem.policy.paths
    for i, (theta, other) in enumerate(zip(now, old, strict=True)):
        current, before, clipped, moved, length = problem.at(theta), problem.at(other), 0.0, 0.0, 0.0
        log_ratios = current.token_log_probabilities - before.token_log_probabilities
        for m, k in product(range(3), range(paths.n_responses)):
            p, right = before.probabilities[m, k], problem.bandit.mean_reward[m, k]
            for log_ratio in log_ratios[m, paths.edges[k, : paths.lengths[k]]]:
                clipped += p * (right * (log_ratio > np.log(1.2)) + (1.0 - right) * (log_ratio < np.log(0.8)))
                moved += p * abs(log_ratio)
                length += p
        assert pairs.clipped(pairs.gains(ARMS["clip"]))[i] == pytest.approx(clipped / length, rel=1e-12)
        assert pairs.log_ratios()[i] == pytest.approx(moved / length, rel=1e-12)
        assert 0.0 < clipped < 0.5 * length
    assert (pairs.clipped(pairs.gains(ARMS["none"])) == 0.0).all()


@pytest.mark.parametrize("optimiser", [gt.SGD(), gt.Adam()])
@pytest.mark.parametrize("arm", ARMS)
def test_iterates_are_those_of_the_training_runs(arm, optimiser):
    """The same bits at the end, the first from the start, and a prefix of a longer run is the shorter run."""
    problem = drifted(None)[0]
    where = (problem, problem.theta, ARMS[arm], gt.Constant(0.3))
    grid = StepGrid.of(problem, gt.estimation.find(ARMS[arm]), [1.0], np.full(16, 0.3), (8, 4, 4), optimiser, keeps=True)
    (path,) = grid.iterates(5, rng=3)
    assert (path[:, 0] == problem.theta).all()
    for steps in (16, 8):
        runs = gt.simulate_training(*where, **RUNS | {"steps": steps}, rng=3, optimiser=optimiser, workers=1)
        np.testing.assert_array_equal(path[:, steps], runs.theta)


def test_looks_are_at_updates_after_the_first_of_their_rollouts():
    settings = {"rollouts": 3, "inner_steps": 4}
    places = np.stack([looks.places_of_looks(settings, np.random.default_rng(seed)) for seed in range(200)])
    now, old = places[:, 0].ravel(), places[:, 1].ravel()
    assert set(old) == {0, 4, 8}
    assert set(now - old) == {1, 2, 3}


def test_shares_are_means_over_problems_at_the_step_that_is_best_for_all():
    """Half of the problems point away at two of four looks at the middle step, the best; looks elsewhere do not count."""
    shape = 3, looks.LOOKS, 8
    found = {name: np.ones(shape) for name in (*LOOKED, "broken")} | {
        name: np.full(shape, 0.05) for name in ("clipped", "log ratio")
    }
    found["clip"][1, :2, ::2] = found["clip"][[0, 2]] = -1.0
    table = pd.DataFrame(looks.summarised(np.tile([[0.1], [0.9], [0.2]], 8), found)).query("part == 'all'")
    rows = table.set_index(["quantity", "estimator"])
    away = rows.loc[("away", "clip")]
    assert (away["estimate"], away["replications"], away["at_end"]) == (0.25, 8, False)
    assert away["standard_error"] == pytest.approx(np.std([0.5, 0.0] * 4, ddof=1) / np.sqrt(8))
    assert rows.loc[("less", "none"), "estimate"] == pytest.approx(-0.5)


def test_limits_of_a_bounded_mean_are_hoeffdings():
    """Of shares that are all 0 the upper limit is 1 - (level/2)^(1/n); Clopper and Pearson's limits lie inside."""
    none = BoundedMean(0.0, 0.05, replications=512)
    assert none.interval(1e-3) == (0.0, pytest.approx(1.0 - (5e-4) ** (1.0 / 512)))
    some = BoundedMean(0.1, 0.05, replications=100)
    exact = gt.evidence.Share(0.1, 0.05, replications=100)
    (low, high), (inner_low, inner_high) = some.interval(1e-3), exact.interval(1e-3)
    assert low < inner_low < 0.1 < inner_high < high


@pytest.mark.parametrize("name", LOOKED)
def test_mean_updates_of_a_network_are_those_of_the_exact_law(name):
    """Responses of a group of two, drawn by the behaviour; the mean is the same at every group size."""
    rng = np.random.default_rng(5)
    problem = NETWORKS["2 tokens, width 4"].problem(rng)
    theta, behaviour = problem.theta + 0.3 * rng.normal(size=(2, 2, problem.policy.dimension))
    sure = gt.Problem(gt.Bandit(problem.bandit.mean_reward.round()), problem.policy, theta=problem.theta)
    pairs = LearnedPairs(sure, theta, behaviour)
    for one, now, old in zip(pairs.mean_updates(pairs.gains(LOOKED[name])), theta, behaviour, strict=True):
        law = gt.gradient_mean(sure, now, LOOKED[name], batch_size=1, group_size=2, behaviour=old)
        np.testing.assert_allclose(one, law, atol=1e-12)
    np.testing.assert_allclose(pairs.gradients(), [gt.moments(sure, one).gradient for one in theta], atol=1e-14)


CHAIN = gt.TokenChain([[0, 1], [0, 2], [1, 0]], 6, end_token=0, starts=[0, 1])
THETA = np.array([0.0, 0.3, 0.2, 0.0, -0.1, 0.4])
MOVED = THETA + np.array([0.3, -0.1, 0.2, 0.5, -0.4, 0.1])


@pytest.fixture(scope="module")
def point():
    return gt.Problem(gt.StateRewards([0.0, 1.0, 0.5]), CHAIN).at(THETA)


def listed(point, moved):
    """Return probabilities (M, K) of the listed twin's responses, and the logs of their ratios to another policy's."""
    policy = gt.Problem(point.bandit, CHAIN).listed().policy
    before, after = (policy.probabilities(theta) for theta in (THETA, moved))
    return before, np.log(after / before)


def test_log_ratios_have_the_law_of_those_of_listed_responses(point):
    """The characteristic function, the mean, and the share within the clip; and a drift is as long as it is said to be."""
    chances, logs = listed(point, MOVED)
    u = np.array([0.1, 1.0, 7.0])
    expected = np.array([(chances * np.exp(1j * one * logs)).sum(axis=1).mean() for one in u])
    assert log_ratios.characteristic(point, MOVED, u) == pytest.approx(expected, abs=1e-12)
    assert log_ratios.drifts(point, MOVED) == pytest.approx(-(chances * logs).sum(axis=1), rel=1e-12)
    low, high = (norm.cdf((np.log(end) - logs) / log_ratios.BLUR) for end in log_ratios.WINDOW)
    assert log_ratios.share_within(point, MOVED) == pytest.approx((chances * (high - low)).sum(axis=1).mean(), abs=1e-5)
    chances, logs = listed(point, drifts.drifted(point, 0.3, 1))
    assert -(chances * logs).sum(axis=1).mean() == pytest.approx(0.3, rel=1e-9)


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


def test_the_growth_of_a_ratios_second_moment_is_that_of_a_matrix_power():
    """By the powers of the matrix of sums of p^2/p_0, three tokens from one another."""
    growth, eigenvalue, _ = score_power.growth("bigram text", 0.55, length=64)
    assert growth == pytest.approx(eigenvalue, rel=1e-12)
    average, same, _ = score_power.growth("bigram text", 0.55, over_states=True, length=64)
    assert same == eigenvalue
    assert abs(average - eigenvalue) > 1e-9


def test_an_update_that_points_back_counts_below_nothing():
    assert drifts.ahead(SimpleNamespace(efficiency=0.4, cosine=-0.6)) == -0.4
    found = joined([ratios_by_length.laws("think until sure", 64, 3)])
    own = {(d, name): value for name, law in found.items() for d, value in enumerate(law["efficiency"])}
    lost = [1.0 - own[d, "token, clipped"] / own[d, "token"] for d in range(3)]
    assert ratios_by_length.clip(found)[0] == pytest.approx(lost)
    behind = [np.log(own[d, "token"] / own[d, "trajectory"]) for d in range(3)]
    assert ratios_by_length.whole(found)[0] == pytest.approx(behind)
