"""Credits of tokens: their law by enumeration of all groups, what exact values are worth, and what cannot have them."""

import itertools
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from enumeration import Case, Dense
from runs_by_hand import Algorithm, batches, match
from test_chain import assert_one_law, free, goal, graded

import grpo_theory as gt

SIZES = {"batch_size": 1, "group_size": 2}
TREE = gt.TokenTree(1, vocabulary_size=2, horizon=2, end_token=0)
PROBLEM = gt.Problem(gt.Bandit([[0.2, 0.9, 0.4]]), TREE, theta=[0.3, -0.2, 0.5, 0.1])
OLD, WORLD = np.array([0.1, 0.2, -0.3, 0.4]), Case(PROBLEM, np.eye(4)[None])


pytestmark = pytest.mark.usefixtures("registry")
"""What is composed here is forgotten after each test."""


def uneven(point, settings):
    """Credits that no structure explains: they differ by response and token."""
    k, t = np.indices(point.policy.paths.edges.shape)
    return np.broadcast_to(settings[0] * np.sin(1.0 + 3.0 * k + t), (len(point.probabilities), *k.shape))


UNEVEN = gt.estimation.Credit("uneven", uneven, (0.7,))


def estimator(credit, **parts):
    return gt.compose("credit_test", **{"advantage": "none"} | parts, credit=credit, overwrite=True)


@cache
def credits_of(credit, old):
    return credit.function(PROBLEM.at(np.frombuffer(old)), credit.settings)[0]


class Credited(Dense):
    """The problem written out, with credits of tokens beside advantages; a clip by sign sees the sign of each."""

    def weights(self, now, then, estimator, m, k, advantage):
        plain, credits = super().weights, credits_of(estimator.credit, then.theta.tobytes())[k]
        own = [plain(now, then, estimator, m, k, credits[t])[t] for t in range(self.lengths[k])]
        return plain(now, then, estimator, m, k, advantage) + own


def assert_moments(one, old, drawn):
    """Assert that the law is that of pairs of a chance and an estimate."""
    chances, estimates = (np.array(column) for column in zip(*drawn, strict=True))
    mean, second = chances @ estimates, (estimates.T * chances) @ estimates
    law = gt.gradient_law(PROBLEM, None, one, **SIZES, behaviour=old)
    np.testing.assert_allclose(law.mean, mean, atol=1e-15)
    np.testing.assert_allclose(law.covariance(), second - np.outer(mean, mean), atol=1e-15)
    assert law.mean_squared_norm == pytest.approx(np.trace(second), abs=1e-14)
    np.testing.assert_allclose(gt.gradient_mean(PROBLEM, None, one, **SIZES, behaviour=old), mean, atol=1e-15)
    return law


@pytest.mark.parametrize("parts", [{}, {"advantage": "rloo", "ratio": "token", "clip": "by sign"}], ids=["alone", "clipped"])
def test_the_law_is_that_of_all_groups(parts):
    one, old, dense = estimator(UNEVEN, **parts), OLD if parts else PROBLEM.theta, Credited(WORLD)
    now, then, drawn = dense.at(PROBLEM.theta), dense.at(old), []
    for chance, *sample in batches(dense, then, 1, 2):
        advantages = dense.advantages(then, one, *sample)
        drawn.append((chance, dense.estimates(now, then, one, *sample, advantages)[0]))
    law = assert_moments(one, old, drawn)
    runs = gt.simulate_gradients(PROBLEM, PROBLEM.theta, one, **SIZES, behaviour=old, replications=50_000, rng=2)
    assert runs.mse[0] == pytest.approx(law.mse, rel=0.03)  # five standard errors; without credits it is a third off


CLIPPED = {"advantage": "rloo", "ratio": "token", "clip": "by sign"}
ENDING = gt.TokenChain([[2, 1], [3, 4], [2, 2], [3, 3], [4, 4]], 2, end_token=0)
CHAIN = gt.Problem(gt.StateRewards([0.0, 0.0, 0.2, 0.9, 0.4]), ENDING, theta=[*PROBLEM.theta, *np.zeros(6)])
"""The same policy, by state."""
TRAINED = {
    "a function's": (PROBLEM, UNEVEN, {"advantage": "rloo"}, 0),
    "a function's, clipped": (PROBLEM, UNEVEN, CLIPPED, 1),
    "values, clipped": (PROBLEM, "gae", CLIPPED, 1),
    "values of moving policies": (PROBLEM, "gae", {"advantage": "rloo"}, 0),
    "on a chain": (CHAIN, "gae", {"advantage": "rloo"}, 0),
    "on a chain, clipped": (CHAIN, "gae", CLIPPED, 1),
}


@pytest.mark.parametrize("name", TRAINED)
def test_training_goes_where_credits_lead(name):
    """Every run ends where some two updates end, and ends come as often as they should; by credits of the start they do not."""
    problem, credit, parts, lag = TRAINED[name]
    one = estimator(credit, **parts)
    law = Algorithm(Credited(WORLD), one, np.full(2, 2.0), lag=lag).runs(PROBLEM.theta, 1, 2)
    how = {"batch_size": 1, "group_size": 2, "steps": 2, "lag": lag, "replications": 2_000 if problem is PROBLEM else 400}

    def matched(one):
        runs = gt.simulate_training(problem, None, one, gt.Constant(2.0), **how, rng=5)
        return match(replace(runs, theta=runs.theta[:, :4], average=runs.average[:, :4]), PROBLEM, law)

    distance, p_value = matched(one)
    assert distance < 1e-7
    assert p_value > 1e-6
    assert matched(replace(one, credit=gt.estimation.CREDITS["none"]))[0] > 1e-3


def test_exact_values_are_unbiased_and_quieter():
    """Q - V of each token is the gradient for every lambda, and lambda = 0 is the quietest: it adds up what is known."""
    gradient = gt.exact.gradient(PROBLEM, PROBLEM.theta)
    traces = []
    for decay in (0.0, 0.5, 1.0):
        law = gt.gradient_law(PROBLEM, PROBLEM.theta, estimator(gt.estimation.CREDITS["gae"].with_settings(decay)), **SIZES)
        np.testing.assert_allclose(law.mean, gradient, atol=1e-15)
        traces.append(law.trace)
    assert traces == sorted(traces)
    values = gt.gradient_law(PROBLEM, PROBLEM.theta, estimator("values"), **SIZES)
    assert values.trace == pytest.approx(traces[0], rel=1e-12)
    assert values.trace < 0.5 * gt.gradient_law(PROBLEM, PROBLEM.theta, "oracle", **SIZES).trace


def mean_of_two(drawn):
    """The law of the mean reward of two continuations, each of which is one of these (chance, success), by enumeration."""
    law, one = Counter(), [(p * (s if z else 1.0 - s), z) for p, s in drawn for z in (0.0, 1.0)]
    for (p, z), (q, y) in itertools.product(one, repeat=2):
        law[0.5 * (z + y)] += p * q
    return [*law.items()]


@pytest.mark.parametrize("decay", [0.0, 0.6])
@pytest.mark.parametrize("parts", [{}, {"advantage": "rloo", "ratio": "token"}], ids=["alone", "off policy"])
def test_the_law_is_that_of_all_continuations(parts, decay):
    """Each value before a token is the mean of two continuations, drawn for each response; all of them are enumerated."""
    credit = gt.estimation.CREDITS["gae"].with_settings(decay).with_continuations(2)
    one, old = estimator(credit, **parts), OLD if parts else PROBLEM.theta
    dense = Dense.of(WORLD)
    now, then = dense.at(PROBLEM.theta), dense.at(old)
    weights = [dense.weights(now, then, one, 0, k, 1.0)[:, None] for k in range(3)]
    scores = [own * now.token_scores[0, edges] for own, edges in zip(weights, dense.edges, strict=True)]
    pi, success = then.responses[0], PROBLEM.bandit.mean_reward[0]
    assert TREE.paths.tokens == ((0,), (1, 0), (1, 1))
    start, later = (
        mean_of_two([*zip(pi, success, strict=True)]),
        mean_of_two([*zip(pi[1:] / pi[1:].sum(), success[1:], strict=True)]),
    )
    drawn = []
    for k, z, (first, p), (second, q) in itertools.product(range(3), (0.0, 1.0), start, later):
        credits = np.diff([first, second, success[k]] if k else [first, success[k]])
        credits[:-1] += decay * credits[1:]
        drawn.append((pi[k] * (success[k] if z else 1.0 - success[k]) * p * q, z, scores[k].sum(axis=0), credits @ scores[k]))
    pairs = itertools.product(drawn, repeat=2)
    mixed = 1.0 if parts else 0.0
    assert_moments(one, old, [(p * q, 0.5 * (mixed * (z - y) * (u - w) + v + x)) for (p, z, u, v), (q, y, w, x) in pairs])


@pytest.mark.parametrize("kind", ["drawn", "decided"])
def test_continuations_add_what_falls_as_one_over_their_number(kind):
    """Also of three rewards that prompt and response decide, for several prompts; simulated, continuations are drawn."""
    law = np.eye(3)[[[0, 2, 1, 0], [2, 0, 0, 1]]]
    decided = gt.Problem(gt.Bandit.from_law([0.0, 0.3, 1.0], law), gt.TokenTree(2, 2, 2), theta=np.sin(np.arange(12.0)))
    problem = gt.gallery.problem("sequence-shared") if kind == "drawn" else decided
    laws = {
        k: gt.gradient_law(problem, None, estimator(gt.estimation.CREDITS["vine"].with_continuations(k)), **SIZES) for k in (1, 4)
    }
    exact = gt.gradient_law(problem, None, estimator("values"), **SIZES)
    assert laws[1].trace - exact.trace == pytest.approx(4.0 * (laws[4].trace - exact.trace), rel=1e-9)
    np.testing.assert_allclose(laws[1].mean, exact.mean, atol=1e-15)
    run = {"batch_size": 2, "group_size": 3, "replications": 20_000, "rng": 2}
    one = estimator(gt.estimation.CREDITS["vine"].with_continuations(2), aggregation="own length")
    found = gt.simulate_gradients(problem, None, [one, "rloo"], **run)
    mse = gt.gradient_mse(problem, None, one, batch_size=2, group_size=3)
    assert abs(found.mse[0] - mse) < 4.9 * found.mse_standard_error[0] < 0.1 * (laws[1].trace - exact.trace)


def by_time(point, settings):
    """Credits of a chain's tokens by time, state and token, and the same of its listed responses."""
    chain = free().policy
    table = settings[0] * np.sin(1.0 + np.arange(chain.horizon * chain.n_logits)).reshape(chain.horizon, -1)
    if isinstance(point.policy, gt.TokenChain):
        return table.reshape(chain.horizon, *chain.transitions.shape)
    edges = point.policy.logit_map.features.argmax(axis=-1)[:, np.maximum(point.policy.paths.edges, 0)]
    return table[np.arange(chain.horizon), edges]


GAE, CLIPPED = gt.estimation.CREDITS["gae"].with_settings(0.6), {"ratio": "token", "clip": "by sign", "aggregation": "own length"}
ON_CHAINS = {
    "values": ("values", {}),
    "values, clipped": ("values", {"advantage": "grpo"} | CLIPPED),
    "gae": (GAE, {"advantage": "rloo", "ratio": "token", "aggregation": "own length"}),
    "gae, whole ratio": (GAE, {"advantage": "rloo", "ratio": "trajectory"}),
    "continuations": (GAE.with_continuations(2), {"advantage": "rloo", "ratio": "token", "aggregation": "own length"}),
    "own": (gt.estimation.Credit("by time", by_time, (0.7,)), {"advantage": "rloo"} | CLIPPED),
}


@pytest.mark.parametrize("make", [free, graded, goal])
@pytest.mark.parametrize("name", ON_CHAINS)
@pytest.mark.parametrize("away", [0.0, 0.5])
def test_laws_on_a_chain_are_those_of_its_listed_responses(make, name, away):
    """Values, decays, errors of continuations, credits of one's own, clips by sign, shares by length, both ratios."""
    credit, parts = ON_CHAINS[name]
    if (name, make) == ("own", graded):
        return  # its responses share features, of which tokens cannot be told
    problem, one = make(), estimator(credit, **parts)
    sizes = {"batch_size": 3, "group_size": 4, "behaviour": problem.theta + away * np.sin(np.arange(problem.theta.size))}
    found, listed = gt.gradient_law(problem, None, one, **sizes), gt.gradient_law(problem.listed(), None, one, **sizes)
    assert_one_law(found, listed)
    np.testing.assert_allclose(gt.gradient_mean(problem, None, one, **sizes), found.mean, rtol=1e-12)


@pytest.mark.parametrize("name", ["values, clipped", "continuations", "own"])
def test_estimates_on_a_chain_have_their_law(name, seed):
    """Off policy; without credits, or with each other's, they are far from it."""
    problem, one = free(), estimator(ON_CHAINS[name][0], **ON_CHAINS[name][1])
    directions = np.eye(problem.theta.size)[:4]
    sizes = {"batch_size": 3, "group_size": 4, "behaviour": problem.theta + 0.5 * np.sin(np.arange(problem.theta.size))}
    law, bare = (
        gt.gradient_law(problem, None, each, **sizes) for each in (one, replace(one, credit=gt.estimation.CREDITS["none"]))
    )
    run = gt.simulate_gradients(problem, None, one, **sizes, directions=directions, replications=10_000, rng=seed(5))
    along = (run.along[0] - directions @ law.mean) / run.along_standard_error[0]
    assert np.abs([*along, (run.mse[0] - law.mse) / run.mse_standard_error[0]]).max() < 4.9
    assert abs(bare.mse - law.mse) > 10.0 * run.mse_standard_error[0]


def test_values_of_a_thousand_tokens_are_unbiased_and_quieter_than_a_baseline():
    parity = gt.TokenChain([[0, 1], [1, 0], [2, 3], [3, 2]], horizon=1024, starts=[0, 2])
    problem = gt.Problem(gt.StateRewards([1, 0, 0, 1]), parity, theta=[0, -6, 0, -6.5, 0, -7.5, 0, -7])
    values, oracle = (gt.gradient_law(problem, None, one, **SIZES) for one in (estimator("values"), "oracle"))
    np.testing.assert_allclose(values.mean, gt.gradient(problem), rtol=1e-9)
    assert values.trace < 0.75 * oracle.trace
    assert np.trace(values.covariance()) == pytest.approx(values.trace, rel=1e-9)
    path = gt.mean_path(problem, None, estimator("gae"), gt.Constant(0.5), group_size=2, steps=1)
    np.testing.assert_allclose(path.theta[1] - path.theta[0], 0.5 * gt.gradient(problem), rtol=1e-9)


def test_a_penalty_in_the_loss_is_not_in_the_values_too():
    """Of KL(pi || reference) the gradient is climbed once: by credits of penalised rewards, or by the loss beside others."""
    problem = gt.Problem(PROBLEM.bandit, TREE, gt.KL(0.3, [[0.2, 0.5, 0.3]]), theta=PROBLEM.theta)
    loss = gt.gradient_mean(problem, None, estimator("none", advantage="none", kl="k2 in loss"), **SIZES)
    for credit in ("values", "vine"):
        inside = gt.gradient_mean(problem, None, estimator(credit), **SIZES)
        np.testing.assert_allclose(inside, gt.gradient(problem), atol=1e-14)
        beside = gt.gradient_mean(problem, None, estimator(credit, kl="k2 in loss"), **SIZES)
        np.testing.assert_allclose(beside, loss + gt.gradient(PROBLEM), atol=1e-14)


def test_errors_of_continuations_depend_neither_on_neighbours_nor_on_where_rewards_begin():
    one, two = (gt.estimation.CREDITS["vine"].with_continuations(k) for k in (1, 4))
    run = {"batch_size": 2, "group_size": 3, "replications": 5000, "rng": 4}
    alone = gt.simulate_gradients(PROBLEM, None, estimator(one), **run)
    beside = gt.simulate_gradients(PROBLEM, None, ["rloo", replace(estimator(two), name="more"), estimator(one)], **run)
    assert alone.mse[0] == beside.mse[2]
    far = gt.Problem(gt.Bandit.from_law([1e8, 1e8 + 1.0], PROBLEM.bandit.probabilities), TREE, theta=PROBLEM.theta)
    traces = [gt.gradient_law(problem, None, estimator(one), **SIZES).trace for problem in (PROBLEM, far)]
    assert traces[1] == pytest.approx(traces[0], rel=1e-6)


def test_what_cannot_have_credits_says_so(check_refused):
    one, chain = estimator("values"), gt.gallery.problem("chain-copy")
    run = {"batch_size": 1, "group_size": 2, "replications": 2, "rng": 0}
    clipped = estimator("vine", ratio="token", clip="by sign")
    penalised = gt.Problem(PROBLEM.bandit, TREE, gt.KL(0.1, [[0.2, 0.5, 0.3]]))
    short = gt.estimation.Credit("short", lambda point, settings: np.zeros((1, 2)))
    behind = {"behaviour": chain.theta + np.sin(np.arange(chain.theta.size))}
    k3_inside, nothing = estimator("values", kl="k3 in reward"), gt.estimation.CREDITS["none"]
    late, whole = estimator("gae", ratio="token", clip="by sign"), estimator("values", ratio="trajectory")
    check_refused(
        (lambda: gt.simulate_training(PROBLEM, None, estimator("vine"), gt.Constant(0.1), **run, steps=1), "continuations"),
        (lambda: gt.simulate_training(chain, None, estimator("vine"), gt.Constant(0.1), **run, steps=1), "gt.mean_path"),
        (lambda: gt.simulate_training(PROBLEM, None, one, gt.Constant(0.1), **run, steps=1, allocation="uniform"), "credits"),
        (lambda: gt.gradient_law(chain, None, estimator(short), **SIZES), r"credit must have shape .*\(T, S, V\)"),
        (lambda: gt.gradient_law(chain, None, late, **SIZES, **behind), "must not see the sign of credits"),
        (lambda: gt.simulate_gradients(chain, None, whole, **run, **behind), "weigh each token by its own ratio"),
        (lambda: gt.exact.climbed(one, [0.0, 1.0], group_size=2), "no function of the rewards' law"),
        (lambda: estimator("value"), "credit must be"),
        (lambda: gt.gradient_law(PROBLEM, None, clipped, **SIZES, behaviour=OLD), "clip that does not depend on the sign"),
        (lambda: gt.simulate_gradients(penalised, PROBLEM.theta, estimator("vine"), **run), "its KL term in the loss"),
        (lambda: gt.estimation.CREDITS["vine"].with_continuations(-1), "continuations must be"),
        (lambda: gt.gradient_law(penalised, None, k3_inside, **SIZES), "'k1 in reward' or in the loss"),
        (lambda: nothing.with_continuations(2), "exact values, as 'values' and 'gae' are"),
        (lambda: gt.gradient_law(PROBLEM, PROBLEM.theta, estimator(short), **SIZES), r"credit must have shape .*\(M, K, T\)"),
    )
    assert len(gt.mean_path(PROBLEM, PROBLEM.theta, one, gt.Constant(0.5), group_size=2, steps=3).theta) == 4
