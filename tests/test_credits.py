"""Credits of tokens: their law by enumeration of all groups, what exact values are worth, and what cannot have them."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.stats import chi2
from test_chain import assert_one_law, free, goal, graded

import grpo_theory as gt

SIZES = {"batch_size": 1, "group_size": 2}
TREE = gt.TokenTree(1, vocabulary_size=2, horizon=2, end_token=0)
PROBLEM = gt.Problem(gt.Bandit([[0.2, 0.9, 0.4]]), TREE, theta=[0.3, -0.2, 0.5, 0.1])
OLD = np.array([0.1, 0.2, -0.3, 0.4])


pytestmark = pytest.mark.usefixtures("registry")
"""What is composed here is forgotten after each test."""


def uneven(point, settings):
    """Credits that no structure explains: they differ by response and token."""
    k, t = np.indices(point.policy.paths.edges.shape)
    return np.broadcast_to(settings[0] * np.sin(1.0 + 3.0 * k + t), (len(point.probabilities), *k.shape))


def estimator(credit, **parts):
    return gt.compose("credit_test", **{"advantage": "none"} | parts, credit=credit, overwrite=True)


def weighted_scores(one, theta, old):
    """The weighted score of each token of each response, by the sign of what multiplies it (K, T, 2, d)."""
    now, before = PROBLEM.at(theta), PROBLEM.at(old)
    paths, eye = TREE.paths, np.eye(TREE.n_logits)
    found = np.zeros((3, 2, 2, TREE.dimension))
    for k, t in zip(*np.nonzero(paths.taken), strict=True):
        edge = paths.edges[k, t]
        score = eye[edge].copy()
        start = edge // 2 * 2
        score[start : start + 2] -= now.token_probabilities[0, start : start + 2]
        ratio = now.token_probabilities[0, edge] / before.token_probabilities[0, edge] if one.ratio.name == "token" else 1.0
        kept = [ratio * (ratio <= 1.2), ratio * (ratio >= 0.8)] if one.clip.name == "by sign" else [ratio, ratio]
        found[k, t] = np.multiply.outer(kept, score)
    return found


def terms(one, theta, old):
    """The sums of weighted token scores of each response: what advantages multiply, by sign, and what credits add (K, d)."""
    scores, added = weighted_scores(one, theta, old), np.zeros((3, TREE.dimension))
    credits = one.credit.function(PROBLEM.at(old), one.credit.settings)[0]
    for k, t in np.ndindex(3, 2):
        added[k] += credits[k, t] * scores[k, t, 0 if credits[k, t] > 0.0 else 1]
    return scores.sum(axis=1), added


@pytest.mark.parametrize("parts", [{}, {"advantage": "rloo", "ratio": "token", "clip": "by sign"}], ids=["alone", "clipped"])
def test_the_law_is_that_of_all_groups(parts):
    credit = gt.estimation.Credit("uneven", uneven, (0.7,))
    one, old = estimator(credit, **parts), OLD if parts else PROBLEM.theta
    by_sign, added = terms(one, PROBLEM.theta, old)
    pi, success = PROBLEM.at(old).probabilities[0], PROBLEM.bandit.mean_reward[0]
    mean, second = np.zeros(4), np.zeros((4, 4))
    for group in itertools.product(itertools.product(range(3), (0.0, 1.0)), repeat=2):
        chance = np.prod([pi[k] * (success[k] if z else 1.0 - success[k]) for k, z in group])
        estimate = np.zeros(4)
        for (k, z), (_, other) in (group, group[::-1]):
            advantage = z - other if parts else 0.0
            estimate += 0.5 * (advantage * by_sign[k, 0 if advantage > 0.0 else 1] + added[k])
        mean, second = mean + chance * estimate, second + chance * np.outer(estimate, estimate)
    law = gt.gradient_law(PROBLEM, PROBLEM.theta, one, **SIZES, behaviour=old)
    np.testing.assert_allclose(law.mean, mean, atol=1e-15)
    np.testing.assert_allclose(law.covariance(), second - np.outer(mean, mean), atol=1e-15)
    np.testing.assert_allclose(gt.gradient_mean(PROBLEM, PROBLEM.theta, one, **SIZES, behaviour=old), mean, atol=1e-15)
    runs = gt.simulate_gradients(PROBLEM, PROBLEM.theta, one, **SIZES, behaviour=old, replications=50_000, rng=2)
    assert runs.mse[0] == pytest.approx(law.mse, rel=0.03)  # five standard errors; without credits it is a third off


def ends_of_two_updates(one, step, lag):
    """All ends of two updates on a group of two each, and their chances; the second is drawn anew, or as the first was."""
    found = [(1.0, [PROBLEM.theta])]
    for _ in range(2):
        before, found = found, []
        for chance, path in before:
            theta, old = path[-1], path[0] if lag else path[-1]
            (by_sign, added), success = terms(one, theta, old), PROBLEM.bandit.mean_reward[0]
            pi = PROBLEM.at(old).probabilities[0]
            for group in itertools.product(itertools.product(range(3), (0.0, 1.0)), repeat=2):
                own = np.prod([pi[k] * (success[k] if z else 1.0 - success[k]) for k, z in group])
                both = zip(group, group[::-1], strict=True)
                estimate = sum((z - other) * by_sign[k, 0 if z > other else 1] + added[k] for (k, z), (_, other) in both)
                found.append((chance * own, [*path, theta + 0.5 * step * estimate]))
    chances, paths = zip(*found, strict=True)
    return np.array(chances), np.array(paths)


CLIPPED = {"advantage": "rloo", "ratio": "token", "clip": "by sign"}
ENDS_AT = [[2, 1], [3, 4], [2, 2], [3, 3], [4, 4]]
CHAIN = gt.Problem(
    gt.StateRewards([0.0, 0.0, 0.2, 0.9, 0.4]),
    gt.TokenChain(ENDS_AT, 2, end_token=0),
    theta=[*PROBLEM.theta, *np.zeros(6)],
)
"""The same policy, by state."""
TRAINED = {
    "a function's": (PROBLEM, gt.estimation.Credit("uneven", uneven, (0.7,)), {"advantage": "rloo"}, 0),
    "a function's, clipped": (PROBLEM, gt.estimation.Credit("uneven", uneven, (0.7,)), CLIPPED, 1),
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
    chances, paths = ends_of_two_updates(one, 2.0, lag)
    how = {"batch_size": 1, "group_size": 2, "steps": 2, "lag": lag, "replications": 2_000 if problem is PROBLEM else 400}
    theta = gt.simulate_training(problem, None, one, gt.Constant(2.0), **how, rng=5).theta[:, :4]
    keys, place = np.unique(paths[:, -1].round(8), axis=0, return_inverse=True)
    distance, nearest = cKDTree(keys).query(theta)
    assert distance.max() < 1e-7
    expected = np.bincount(place.ravel(), weights=chances) * len(theta)
    assert chi2.sf(((np.bincount(nearest, minlength=len(keys)) - expected) ** 2 / expected).sum(), len(keys) - 1) > 1e-6
    still = replace(one, credit=gt.estimation.CREDITS["none"])
    others = gt.simulate_training(problem, None, still, gt.Constant(2.0), **how, rng=5).theta[:, :4]
    assert np.median(cKDTree(keys).query(others)[0]) > 1e-3


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
    scores = weighted_scores(one, PROBLEM.theta, old)[:, :, 0]
    pi, success = PROBLEM.at(old).probabilities[0], PROBLEM.bandit.mean_reward[0]
    assert TREE.paths.tokens == ((0,), (1, 0), (1, 1))
    start, later = (
        mean_of_two([*zip(pi, success, strict=True)]),
        mean_of_two([*zip(pi[1:] / pi[1:].sum(), success[1:], strict=True)]),
    )
    drawn = []
    for k, z, (first, p), (second, q) in itertools.product(range(3), (0.0, 1.0), start, later):
        credits = np.diff([first, second, success[k]] if k else [first, success[k], success[k]])
        credits[0] += decay * credits[1]
        drawn.append((pi[k] * (success[k] if z else 1.0 - success[k]) * p * q, z, scores[k].sum(axis=0), credits @ scores[k]))
    mean, second_moment = np.zeros(4), np.zeros((4, 4))
    for (p, z, u, v), (q, y, w, x) in itertools.product(drawn, repeat=2):
        estimate = 0.5 * ((z - y) * (u - w) + v + x) if parts else 0.5 * (v + x)
        mean, second_moment = mean + p * q * estimate, second_moment + p * q * np.outer(estimate, estimate)
    law = gt.gradient_law(PROBLEM, PROBLEM.theta, one, **SIZES, behaviour=old)
    np.testing.assert_allclose(law.mean, mean, atol=1e-14)
    np.testing.assert_allclose(law.covariance(), second_moment - np.outer(mean, mean), atol=1e-14)
    assert law.mean_squared_norm == pytest.approx(np.trace(second_moment), abs=1e-14)
    np.testing.assert_allclose(gt.gradient_mean(PROBLEM, PROBLEM.theta, one, **SIZES, behaviour=old), mean, atol=1e-14)


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
        (
            lambda: gt.gradient_law(PROBLEM, PROBLEM.theta, clipped, **SIZES, behaviour=OLD),
            "clip that does not depend on the sign",
        ),
        (
            lambda: gt.simulate_gradients(penalised, PROBLEM.theta, estimator("vine"), **run),
            "its KL term in the loss",
        ),
        (lambda: gt.estimation.CREDITS["vine"].with_continuations(-1), "continuations must be"),
        (
            lambda: gt.gradient_law(penalised, None, estimator("values", kl="k3 in reward"), **SIZES),
            "'k1 in reward' or in the loss",
        ),
        (
            lambda: gt.gradient_law(PROBLEM, None, estimator(gt.estimation.CREDITS["none"].with_continuations(2)), **SIZES),
            "exact values, as 'values' and 'gae' are",
        ),
        (lambda: gt.gradient_law(PROBLEM, PROBLEM.theta, estimator(short), **SIZES), r"credit must have shape .*\(M, K, T\)"),
    )
    assert len(gt.mean_path(PROBLEM, PROBLEM.theta, one, gt.Constant(0.5), group_size=2, steps=3).theta) == 4
