"""Policies over sequences: one token is a bandit, and several tokens are what all sequences, written out, say they are."""

from dataclasses import replace

import numpy as np
import pytest
from sequences import (
    Case,
    assert_close,
    assert_law,
    batch_law,
    case,
    differentiate,
    gradient,
    hessian,
    list_prefixes,
    list_responses,
    look,
    objective,
    probabilities,
    prompt_gradients,
    reference_logs,
    responses,
    scores,
    token_logs,
    token_scores,
)

import grpo_theory as gt
from grpo_theory.estimation import make_estimator
from grpo_theory.estimation.trainers import CONVENTIONS
from grpo_theory.exact import gradient as exact_gradient
from grpo_theory.exact.derivatives import fill_objectives, hessian_along

LIBRARY = tuple(
    name
    for name, e in gt.estimators().items()
    if e.advantage.function.__module__.startswith("grpo_theory.") and name not in CONVENTIONS
)
"""Without the trainers' conventions, which have tests of their own."""
NAMED = tuple(name for name in LIBRARY if gt.estimators()[name].advantage.name == name)
COUPLED = tuple(name for name in LIBRARY if gt.estimators()[name].couples_groups)


# One token: a bandit and its twin.


def twins(features, penalty, rewards="binary", end_token=None):
    """Return a problem of one token, as a bandit and as a tree."""
    rng = np.random.default_rng([features == "tabular", penalty == "kl", rewards == "binary"])
    n_prompts, n_responses = 3, 4
    weights = rng.dirichlet(np.full(n_prompts, 4.0))
    if rewards == "binary":
        bandit = gt.Bandit(rng.uniform(0.1, 0.9, (n_prompts, n_responses)), weights)
    else:
        bandit = gt.Bandit.from_law([-1.0, 0.5, 2.0], rng.dirichlet(np.ones(3), size=(n_prompts, n_responses)), weights)
    kl = gt.KL(0.7, rng.dirichlet(np.full(n_responses, 3.0), size=n_prompts)) if penalty == "kl" else None
    table = None if features == "tabular" else rng.normal(size=(n_prompts, n_responses, 3))
    flat = gt.TabularSoftmax(n_prompts, n_responses) if table is None else gt.LinearSoftmax(table)
    tree = gt.TokenTree(n_prompts, n_responses, 1, end_token, table)
    theta = rng.normal(size=flat.dimension)
    return gt.Problem(bandit, flat, kl, theta), gt.Problem(bandit, tree, kl, theta)


TWINS = pytest.mark.parametrize(
    ("features", "penalty", "rewards", "end_token"),
    [
        ("tabular", "plain", "binary", None),
        ("tabular", "kl", "graded", 2),
        ("shared", "plain", "graded", 0),
        ("shared", "kl", "binary", None),
    ],
)


@TWINS
def test_a_tree_of_one_token_has_the_tables_of_its_bandit(features, penalty, rewards, end_token):
    flat, tree = twins(features, penalty, rewards, end_token)
    assert tree.policy.responses == ((0,), (1,), (2,), (3,))
    assert tree.policy.prefixes == ((),)
    assert_close(tree.policy.probabilities(tree.theta), flat.policy.probabilities(flat.theta))
    assert_close(tree.policy.scores(tree.theta), flat.policy.scores(flat.theta))
    points = tree.at(tree.theta), flat.at(flat.theta)
    for name in ("token_probabilities", "outcome_probabilities", "rewards", "penalties", "covectors", "squared_score_norms"):
        assert_close(*(getattr(point, name) for point in points))
    assert_close(gt.objective(tree, tree.theta), gt.objective(flat, flat.theta))
    assert_close(exact_gradient(tree, tree.theta), exact_gradient(flat, flat.theta))
    assert_close(gt.hessian(tree, tree.theta), gt.hessian(flat, flat.theta))


@TWINS
@pytest.mark.parametrize("off_policy", [False, True])
def test_a_tree_of_one_token_has_the_gradient_laws_of_its_bandit(features, penalty, rewards, end_token, off_policy):
    flat, tree = twins(features, penalty, rewards, end_token)
    behaviour = flat.theta[::-1].copy() if off_policy else None
    for name in LIBRARY:
        if name in COUPLED:
            continue
        sizes = {"batch_size": 2, "group_size": 3, "behaviour": behaviour}
        found, expected = (gt.gradient_law(problem, problem.theta, name, **sizes) for problem in (tree, flat))
        for field in ("mean", "bias", "mse", "trace", "prompt_traces", "prompt_mses", "prompt_mse"):
            assert_close(getattr(found, field), getattr(expected, field))
        assert_close(found.covariance(), expected.covariance())


# Several tokens: the enumeration.

TREES = [
    (features, rewards, penalty)
    for features in ("tabular", "shared")
    for rewards, penalty in (("binary", "plain"), ("binary", "kl"), ("graded", "plain"), ("graded", "kl"))
]
ALL_TREES = pytest.mark.parametrize(("features", "rewards", "penalty"), TREES)


def test_responses_and_prefixes_are_those_of_the_enumeration():
    for sizes in ((2, 3, 1), (3, 3, 1), (3, 3, 0), (3, 3, 2), (3, 2, None), (4, 1, None), (2, 4, 0), (1, 3, None), (1, 3, 0)):
        tree = gt.TokenTree(1, *sizes)
        assert list(tree.responses) == list_responses(*sizes)
        assert list(tree.prefixes) == list_prefixes(*sizes)
    assert {len(response) for response in list_responses(3, 3, 1)} == {1, 2, 3}


@pytest.mark.parametrize("features", ["tabular", "shared"])
def test_the_enumeration_differentiates_itself(features):
    c = case(features, penalty="kl", vocabulary_size=3)
    theta = c.behaviour
    assert_close(probabilities(c, theta).sum(axis=1), np.ones(2))
    for m in range(2):
        assert_close(np.exp([reference_logs(c, m, r).sum() for r in responses(c)]), c.problem.kl.reference[m])
        for response in responses(c):
            by_step = differentiate(lambda t, m=m, r=response: token_logs(c, t, m, r), theta)
            assert_close(token_scores(c, theta, m, response), by_step)
    assert_close(gradient(c, theta), differentiate(lambda t: objective(c, t), theta))


@ALL_TREES
def test_probabilities_and_scores_of_sequences(features, rewards, penalty):
    c = case(features, rewards, penalty, vocabulary_size=3)
    for theta in (c.theta, c.behaviour):
        point, pi, w = c.problem.at(theta), probabilities(c, theta), scores(c, theta)
        assert_close(c.problem.policy.probabilities(theta), pi)
        assert_close(c.problem.policy.scores(theta), w)
        assert_close(point.probabilities, pi)
        assert_close(point.squared_score_norms, (w**2).sum(axis=2))
        if c.problem.kl is not None:
            assert_close(point.penalties, c.problem.kl.strength * np.log(pi / c.problem.kl.reference))


@ALL_TREES
def test_moments_of_sequences(features, rewards, penalty):
    c = case(features, rewards, penalty, vocabulary_size=3)
    found = gt.moments(c.problem, c.theta)
    truths = prompt_gradients(c, c.theta)
    assert_close(found.prompt_gradients, truths)
    assert_close(found.prompt_gradient_power, (truths**2).sum(axis=1))
    assert_close(found.gradient, differentiate(lambda t: objective(c, t), c.theta))
    for m in range(2):
        seen = look(c, m, gt.estimators()["rloo"], c.theta)
        p, z, norms = seen.probabilities, seen.rewards, seen.norms
        power = p @ norms
        norm_deviation = np.sqrt(p @ (norms - power) ** 2)
        covariance = p @ (norms * (z - seen.value))
        assert_close(found.value[m], seen.value)
        assert_close(found.reward_variance[m], seen.standard_deviation**2)
        assert_close(found.optimal_baseline[m], seen.optimal_baseline)
        assert_close(found.score_power[m], power)
        assert_close(found.score_reward_power[m], p @ (norms * z))
        assert_close(found.oracle_power[m], p @ (norms * (z - seen.value) ** 2))
        assert_close(found.score_reward_correlation[m], covariance / (norm_deviation * seen.standard_deviation))


def test_objectives_agree_with_plain_python_point_by_point():
    found = case("shared", "binary", "kl")
    paths, bandit = found.problem.policy.paths, found.problem.bandit
    logits = np.random.default_rng(6).normal(size=(5, found.problem.policy.n_prompts, paths.n_logits))
    logits[3, 0, 0] = np.nan
    tables = np.stack([bandit.mean_reward, np.log(found.problem.kl.reference)]), bandit.prompt_weights.copy()
    tree = paths.edges, paths.lengths, paths.vocabulary_size
    together, plain, alone = np.empty(5), np.empty(5), np.empty(5)
    fill_objectives(logits, *tables, 0.4, *tree, together)
    fill_objectives.function(logits, *tables, 0.4, *tree, plain)
    np.testing.assert_allclose(together, plain, rtol=1e-13)
    for point in range(5):
        fill_objectives(logits[point : point + 1], *tables, 0.4, *tree, alone[point : point + 1])
    np.testing.assert_array_equal(alone, together)
    np.testing.assert_array_equal(np.isnan(together), np.arange(5) == 3)


@ALL_TREES
def test_gradient_and_hessian_of_the_objective(features, rewards, penalty):
    c = case(features, rewards, penalty, vocabulary_size=3)
    for theta in (c.theta, c.behaviour):
        assert_close(gt.objective(c.problem, theta), objective(c, theta))
        assert_close(exact_gradient(c.problem, theta), differentiate(lambda t: objective(c, t), theta))
        assert_close(gt.hessian(c.problem, theta), hessian(c, theta))
    points, directions = np.stack([c.theta, 0.7 * c.theta]), np.random.default_rng(0).normal(size=(3, len(c.theta)))
    for form, theta in zip(hessian_along(c.problem, points, directions), points, strict=True):
        assert_close(form, directions @ hessian(c, theta) @ directions.T)


@ALL_TREES
@pytest.mark.parametrize(("vocabulary_size", "group_size"), [(3, 2), (2, 3)])
@pytest.mark.parametrize("name", NAMED)
def test_laws_of_named_estimators_on_sequences(features, rewards, penalty, vocabulary_size, group_size, name):
    c = case(features, rewards, penalty, vocabulary_size)
    law = gt.gradient_law(c.problem, c.theta, name, batch_size=3, group_size=group_size)
    assert_law(law, batch_law(c, gt.estimators()[name], 3, group_size))
    assert_close(law.true_gradient, gradient(c, c.theta))


def all_fields(batch, advantages):
    """Read everything that there is to read."""
    for b in range(batch.rewards.shape[0]):
        total = batch.rewards[b].sum() + batch.squared_score_norms[b].sum() / batch.lengths[b].sum()
        for g in range(batch.rewards.shape[1]):
            own = (batch.rewards[b, g] - batch.values[b]) * batch.squared_score_norms[b, g] / batch.standard_deviations[b]
            advantages[b, g] = own - batch.optimal_baselines[b] / batch.lengths[b, g] + total


@ALL_TREES
def test_laws_of_a_kernel_that_reads_lengths(features, rewards, penalty):
    c, own, group_size = case(features, rewards, penalty, 2), make_estimator("all_fields", all_fields), 3
    assert "lengths" in own.reads
    law = gt.gradient_law(c.problem, c.theta, own, batch_size=2, group_size=group_size)
    expected = batch_law(c, own, 2, group_size)
    assert_law(law, expected)
    # As if every response had one token: the length matters.
    looks = [look(c, m, own, c.theta) for m in range(2)]
    blind = [seen._replace(lengths=np.ones_like(seen.lengths)) for seen in looks]
    wrong = batch_law(c, own, 2, group_size, looks=blind).mean
    assert np.linalg.norm(wrong - law.mean) > 1e-3 * np.linalg.norm(law.mean)


# Maximisers and the limit law.


@pytest.mark.parametrize(("vocabulary_size", "horizon", "end_token"), [(3, 3, 1), (2, 3, None), (2, 2, 0)])
def test_the_maximiser_of_a_tabular_tree_is_known(vocabulary_size, horizon, end_token):
    c = case("tabular", "graded", "kl", vocabulary_size, horizon, end_token)
    best = gt.find_optimum(c.problem, np.zeros(c.problem.policy.dimension))
    kl, mean = c.problem.kl, c.problem.bandit.probabilities @ c.problem.bandit.values
    tilted = kl.reference * np.exp(mean / kl.strength)
    assert_close(probabilities(c, best), tilted / tilted.sum(axis=1, keepdims=True))
    assert_close(gradient(c, best), np.zeros_like(best))
    assert_close(best.reshape(-1, vocabulary_size).sum(axis=1), np.zeros(len(best) // vocabulary_size), 1e-11)
    value = kl.strength * c.problem.bandit.prompt_weights @ np.log(tilted.sum(axis=1))
    assert_close(objective(c, best), value)
    for theta in (c.theta, c.behaviour):
        assert objective(c, theta) < value


def kl_sequence() -> Case:
    """The gallery's problem, and its maximiser as theta."""
    problem = gt.gallery.problem("kl-sequence")
    best = gt.find_optimum(problem, problem.theta)
    return Case(problem, 2, 2, 0, problem.policy.logit_map.features, best, best)


def lyapunov_weights(c, estimator, batch_size, group_size, step_scale):
    """Solve (beta A - 1/2) S + S (beta A - 1/2)' = beta^2 Gamma as linear equations, and weigh S by the curvature."""
    curvature = -hessian(c, c.theta)
    eigenvalues, vectors = np.linalg.eigh(curvature)
    q = vectors[:, eigenvalues > 1e-9 * eigenvalues.max()]
    law = batch_law(c, gt.estimators()[estimator], batch_size, group_size)
    shrink = 1.0 - 1.0 / group_size if estimator == "dr_grpo" else 1.0  # its mean is so much of the gradient
    a = step_scale * shrink * q.T @ curvature @ q - np.eye(q.shape[1]) / 2.0
    one = np.eye(len(a))
    gamma = step_scale**2 * q.T @ law.covariance @ q
    s = np.linalg.solve(np.kron(a, one) + np.kron(one, a), gamma.reshape(-1)).reshape(a.shape)
    return np.sort(np.linalg.eigvals(0.5 * s @ (q.T @ curvature @ q)).real)


@pytest.mark.parametrize("estimator", ["rloo", "reinforce", "optimal_loo", "dr_grpo"])
@pytest.mark.parametrize("problem", ["kl-sequence", "tabular tree"])
def test_the_limit_law_solves_the_lyapunov_equation(problem, estimator):
    c = kl_sequence() if problem == "kl-sequence" else case("tabular", "binary", "kl")
    best = gt.find_optimum(c.problem, c.theta)
    c = replace(c, theta=best)
    eigenvalues = np.linalg.eigvalsh(-hessian(c, best))
    step_scale = 1.7 / eigenvalues[eigenvalues > 1e-9 * eigenvalues.max()].min()
    law = gt.limit_law(c.problem, best, estimator, batch_size=2, group_size=2, step_scale=step_scale)
    expected = lyapunov_weights(c, estimator, 2, 2, step_scale)
    assert expected.min() > 0.0
    # The library takes the drift as a difference of means over 2e-5.
    np.testing.assert_allclose(np.sort(law.weights), expected, rtol=1e-6)
    wrong = lyapunov_weights(c, estimator, 2, 2, 1.1 * step_scale)
    assert np.abs(wrong / expected - 1.0).max() > 1e-3


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize(("horizon", "end_token"), [(1, None), (3, 0), (2, None)])
def test_conditionals_are_ratios_of_sums_over_responses(shape, horizon, end_token):
    paths = gt.TokenTree(1, 3, horizon, end_token).paths
    logs = np.random.default_rng(0).normal(size=(*shape, paths.n_responses))
    logs[..., 0] = -np.inf
    through = np.exp(logs) @ paths.incidence
    prefixes = np.repeat(through.reshape(*shape, -1, 3).sum(axis=-1), 3, axis=-1)
    np.testing.assert_allclose(np.exp(paths.conditionals(logs)), through / prefixes, rtol=1e-12)
