"""The studies of sequences: their tables against the library and brute force, and verdicts that follow the evidence."""

from itertools import product

import numpy as np
import pytest

import grpo_theory as gt
from simulations.sequence import drift, group_mean_bounds, own_length, score_bounds, update_terms
from simulations.sequence.divergences import at_held_prefixes, between, expected, gradient, token_logs
from simulations.sequence.language_model import policies
from simulations.sequence.language_model_lengths import update_by
from simulations.sequence.parts import composed, mean_update, random_problem
from simulations.sequence.standardised import STANDARDISED, ascended
from simulations.sequence.stopping import fields, mean_path, stopping
from simulations.sequence.tokens import Family, Tokens
from simulations.training import standardised_optimum


def problem_and_tokens(tree, seed=0):
    problem = random_problem(np.random.default_rng(seed), *tree, n_prompts=2, dimension=3)
    features = problem.policy.jacobian()
    tokens = [Tokens(problem.policy.paths, one @ problem.theta, one) for one in features]
    return problem, tokens


@pytest.mark.parametrize("tree", [(2, 1, None), (2, 3, 1), (3, 2, 0)])
def test_tokens_written_out_are_those_of_the_library(tree):
    problem, tokens = problem_and_tokens(tree)
    point = problem.at(problem.theta)
    np.testing.assert_allclose([one.probabilities for one in tokens], point.token_probabilities, rtol=1e-12)
    np.testing.assert_allclose([one.response_probabilities for one in tokens], point.probabilities, rtol=1e-12)
    np.testing.assert_allclose([one.response_scores for one in tokens], problem.policy.scores(problem.theta), atol=1e-13)
    for m, one in enumerate(tokens):
        rewards = problem.bandit.mean_reward[m]
        own = np.abs(np.linalg.eigvalsh(gt.hessian(problem.at_prompt(m), problem.theta))).max()
        assert score_bounds.curvature(one, rewards) == pytest.approx(own, rel=1e-10)


def terms_by_brute_force(old, now, rewards, group_size):
    """Return E||X2||^2 and E||Y1||^2, by all ordered groups, token by token."""
    paths, p, q = old.paths, old.response_probabilities, now.response_probabilities
    first = second = 0.0
    for group in product(range(p.size), repeat=group_size):
        mean = np.mean([rewards[k] for k in group])
        x2, y1 = np.zeros(old.features.shape[1]), np.zeros(old.features.shape[1])
        for k in group:
            edges = paths.edges[k, : paths.lengths[k]]
            advantage = rewards[k] - mean
            for edge in edges:
                ratio = now.probabilities[edge] / old.probabilities[edge]
                kept = ratio <= 1.2 if advantage >= 0.0 else ratio >= 0.8
                x2 -= kept * old.scores[edge] * (mean - p @ rewards) / len(edges) / group_size
            rho = np.prod(now.probabilities[edges] / old.probabilities[edges])
            y1 += (rho <= 1.2) * rho * now.scores[edges].sum(axis=0) * (q @ rewards - mean) / group_size / paths.horizon
        weight = np.prod([p[k] for k in group])
        first, second = first + weight * x2 @ x2, second + weight * y1 @ y1
    return first, second


@pytest.mark.parametrize("family", [Family(2, 2, 1), Family(3, 1), Family(2, 2)])
def test_what_the_groups_mean_adds_is_what_all_groups_add(family):
    box = np.array(family.bounds(2.0, 1.0, 1.0))
    for x in np.random.default_rng(3).uniform(*box.T, size=(3, len(box))):
        at = family.at(x)
        found = group_mean_bounds.baseline_term(*at, 3), group_mean_bounds.current_term(*at, 3)
        np.testing.assert_allclose(found, terms_by_brute_force(*at, 3), rtol=1e-10)


@pytest.mark.parametrize("kind", ["T1", "T2"])
@pytest.mark.parametrize("reading", update_terms.READINGS)
def test_the_update_is_the_slope_of_the_surrogate(kind, reading):
    """Token by token: ratios that the clip by sign keeps, times scores, or whole responses of a ratio up to 1 + e."""
    problem, before = problem_and_tokens((2, 3, 1))
    paths, theta, slope = problem.policy.paths, problem.theta + np.array([0.5, -0.4, 0.3]), np.zeros(3)
    rollout = update_terms.Rollout(problem, theta, reading, np.random.default_rng(2))
    for m, old in enumerate(before):
        now = Tokens(paths, old.features @ theta, old.features)
        for k, weight, advantage in zip(rollout.drawn[m], rollout.weights[m], rollout.advantages[m], strict=True):
            edges = paths.edges[k, : paths.lengths[k]]
            ratios, scores = now.probabilities[edges] / old.probabilities[edges], now.scores[edges]
            if kind == "T2":
                slope += weight * advantage * (ratios.prod() <= 1.28) * ratios.prod() * scores.sum(axis=0) / paths.horizon
            else:
                kept = ratios <= 1.28 if advantage >= 0.0 else ratios >= 0.8
                slope += weight * advantage * (kept * ratios) @ scores / paths.lengths[k]
    clip = update_terms.CLIPS["by sign" if kind == "T1" else "upper only"].with_widths(0.2, 0.28)
    parts = ("token", clip, "own length") if kind == "T1" else ("trajectory", clip, "constant")
    np.testing.assert_allclose(rollout.update(composed("dr_grpo", *parts)), slope, atol=1e-12)


def test_the_surrogates_gradient_is_its_slope():
    """J with old prefixes, the current token and old continuations, written as it is defined, by finite differences."""
    problem = random_problem(np.random.default_rng(0), 2, 3, 1, n_prompts=1, dimension=3)
    theta = problem.theta + 0.3
    features, paths, rewards = problem.policy.jacobian()[0], problem.policy.paths, problem.bandit.mean_reward[0]
    old, now = (Tokens(paths, features @ vector, features) for vector in (problem.theta, theta))

    def surrogate(vector):
        now, total = Tokens(paths, old.features @ vector, old.features), 0.0
        for k in range(paths.n_responses):
            edges = paths.edges[k, : paths.lengths[k]]
            for t in range(len(edges)):
                path = np.where(np.arange(len(edges)) == t, now.probabilities[edges], old.probabilities[edges])
                total += path.prod() * rewards[k]
        return total

    step = 1e-6
    slopes = [(surrogate(theta + step * e) - surrogate(theta - step * e)) / (2.0 * step) for e in np.eye(3)]
    np.testing.assert_allclose(drift.surrogate_gradient(old, now, rewards), slopes, atol=1e-9)


def test_the_sharp_bound_of_the_gradient_is_attained_by_an_even_policy_of_two_tokens():
    family = Family(2, 1)
    x = np.array([0.0, 1.0, -1.0, 1.0, 0.0])  # logit, feature, rewards, drift
    left, right = score_bounds.gradient(*family.at(x))
    assert left / right * score_bounds.SHARPER["T5/gradient"](2) == pytest.approx(1.0, rel=1e-12)
    assert left / right == pytest.approx(1.0 / np.sqrt(2.0 * np.log(2.0)), rel=1e-12)


@pytest.mark.parametrize("aggregation", ["sum", "own length", "constant"])
@pytest.mark.parametrize("kind", own_length.KINDS)
def test_the_mean_update_is_that_of_all_groups(kind, aggregation):
    problem = own_length.problem_of(kind, np.random.default_rng(0))
    theta = 0.3 * np.random.default_rng(1).normal(size=problem.policy.dimension)
    for advantage in ("rloo", "reinforce"):
        rule = composed(advantage, "none", "none", aggregation)
        exact = gt.gradient_mean(problem, theta, rule, batch_size=1, group_size=2)
        np.testing.assert_allclose(mean_update(problem, theta, rule, advantage == "rloo"), exact, atol=1e-12)


def test_training_ends_where_the_mean_update_is_zero():
    """From the maximiser and from the start: with the division by own length elsewhere, with the horizon's at the maximiser."""
    problem = own_length.problem_of("shared features, KL", np.random.default_rng(4))
    best = gt.find_optimum(problem, problem.theta)
    for rule in ("own length", "constant"):
        ends = [own_length.end_of_training(problem, theta, rule) for theta in (best, problem.theta)]
        np.testing.assert_allclose(own_length.update_by(problem, ends[0], rule), 0.0, atol=1e-7)
        np.testing.assert_allclose(*ends, atol=1e-4)
        assert (np.linalg.norm(ends[0] - best) > 1e-2) == (rule == "own length")


def test_stop_or_go_on_has_the_objective_that_is_said():
    logistic = lambda x: 1.0 / (1.0 + np.exp(-x))  # noqa: E731
    for theta, equal in ((-0.7, False), (0.4, True)):
        expected = 0.5 * (1.0 - logistic(theta) + logistic(2.0 * theta))
        assert gt.objective(stopping(3, equal), [theta]) == pytest.approx(expected, rel=1e-12)
    assert gt.find_optimum(stopping(2, False), np.ones(1)) == pytest.approx([1.0613], abs=1e-4)


def test_interpolated_fields_and_mean_paths_are_right():
    problem, (update, gradient) = stopping(2, False), fields(2, False, "own length")
    rule = composed("rloo", "none", "none", "own length")
    path = [0.0]
    for x in (0.123, 1.789):
        assert float(update(x)) == pytest.approx(mean_update(problem, np.array([x]), rule)[0], abs=2e-6)
        assert float(gradient(x)) == pytest.approx(gt.moments(problem, [x]).gradient[0], abs=2e-6)
    for _ in range(20):
        path.append(path[-1] + 0.5 * mean_update(problem, np.array(path[-1:]), rule)[0])
    np.testing.assert_allclose(mean_path(update, 0.5, 20), path, atol=1e-5)


def small():
    """Return a tree with hidden states of its prefixes, a penalty, and rewards of one response in seven."""
    rng = np.random.default_rng(0)
    tree = gt.TokenTree(3, 3, 2, 2, hidden=rng.normal(size=(3, 3, 4)))
    theta = rng.normal(size=tree.dimension)
    success = np.eye(tree.n_responses)[rng.integers(0, tree.n_responses, 3)]
    return gt.Problem(gt.Bandit(success), tree, gt.KL(0.2, tree.probabilities(rng.normal(size=tree.dimension))), theta)


def test_what_is_measured_of_two_policies_is_a_plain_sum():
    whole = small()
    problem = gt.Problem(whole.bandit, whole.policy, None, whole.theta)
    old, now = problem.at(problem.theta), problem.at(1.3 * problem.theta)
    found = policies(problem, old, now)
    nats = second = tokens = clipped = 0.0
    for m in range(3):
        for k, response in enumerate(problem.policy.responses):
            p, q = old.probabilities[m, k] / 3.0, now.probabilities[m, k] / 3.0
            nats += p * np.log(p / q)
            second += p * (q / p) ** 2
            for edge in problem.policy.paths.edges[k, : len(response)]:
                ratio = now.token_probabilities[m, edge] / old.token_probabilities[m, edge]
                tokens += p
                clipped += p * (ratio > 1.2 if problem.bandit.mean_reward[m, k] else ratio < 0.8)
    assert found["nats"] == pytest.approx(nats, rel=1e-10)
    assert found["effective sample share"] == pytest.approx(1.0 / second, rel=1e-10)
    assert found["tokens clipped"] == pytest.approx(clipped / tokens, rel=1e-10)
    assert abs(found["cross terms"]) < 1e-12 < 1e-4 < abs(found["cross terms, old responses"])


@pytest.mark.parametrize(("aggregation", "share"), [("own length", 1.0), ("own length", 0.9), ("sum", 1.0)])
def test_mean_updates_are_those_of_the_exact_law(aggregation, share):
    """By enumeration of the groups; with a share of the penalty's strength."""
    problem = small()
    other = gt.Problem(problem.bandit, problem.policy, gt.KL(share * 0.2, problem.kl.reference), problem.theta)
    estimator = gt.compose(f"leave-one-out, {aggregation}", advantage="rloo", aggregation=aggregation)
    found = gt.gradient_mean(other, problem.theta, estimator, batch_size=1, group_size=2)
    np.testing.assert_allclose(update_by(problem, problem.theta, aggregation, share), found, atol=1e-13)


def test_divergences_along_tokens_are_those_of_whole_responses():
    """KL by the responses' probabilities, its gradient by central differences; a mean over responses, and over prefixes."""
    problem, theta = gt.gallery.problem("kl-sequence"), np.array([0.4, -0.9])
    weights, reference = problem.bandit.prompt_weights, np.asarray(problem.kl.reference)

    def value(at):
        policy = problem.at(at).probabilities
        return weights @ (policy * np.log(policy / reference)).sum(axis=1)

    divergence = between(problem, problem.log_reference)
    assert divergence(token_logs(problem, theta)) == pytest.approx(value(theta), rel=1e-13)
    differences = [(value(theta + step) - value(theta - step)) / 2e-5 for step in 1e-5 * np.eye(2)]
    np.testing.assert_allclose(gradient(problem, divergence, theta), differences, rtol=1e-8)
    here = problem.at(theta)
    own = here.token_log_probabilities
    over_responses = expected(problem, here, lambda logs: logs**2)(own)
    over_prefixes = at_held_prefixes(problem, here, lambda logs: np.exp(own) * logs**2)(own)
    assert over_responses == pytest.approx(over_prefixes, rel=1e-13)


@pytest.mark.parametrize("group_size", [2, 3, 8, 64])
def test_what_the_study_ascends_is_what_the_library_derives_from_the_kernel(group_size):
    """Two ways to h: a sum of binomial tails with closed weights, and the kernel's own advantages, multiset by multiset."""
    p = np.linspace(0.0, 1.0, 11)
    found = gt.theory.finite_group_objective(STANDARDISED, group_size)
    np.testing.assert_allclose(found.value(p), ascended(p, group_size), rtol=1e-12, atol=1e-14)
    # h' by a step along the imaginary axis
    np.testing.assert_allclose(found.slope(p[1:-1]), ascended(p[1:-1] + 1e-30j, group_size).imag / 1e-30, rtol=1e-11)


@pytest.mark.parametrize("name", standardised_optimum.PROBLEMS)
def test_each_slip_of_the_printed_objective_is_told_apart_by_the_librarys_updates(name):
    """Where one part is corrected alone the library's mean update for it, and its gradient of the other part, cancel."""
    problem, sizes = gt.gallery.problem(name), {"batch_size": 1, "group_size": 4}
    plain = gt.Problem(problem.bandit, problem.policy, theta=problem.theta)
    without, with_k3 = composed(STANDARDISED, "none"), composed(STANDARDISED, "none", kl="k3 in loss")

    at = standardised_optimum.maximise(problem, standardised_optimum.objective(problem, 4, printed_penalty=True))
    printed_penalty = gt.moments(problem, at).gradient - gt.moments(plain, at).gradient
    groups = gt.gradient_mean(plain, at, without, **sizes)
    assert np.abs(groups).max() > 0.01
    np.testing.assert_allclose(groups, -printed_penalty, atol=1e-8)

    at = standardised_optimum.maximise(problem, standardised_optimum.objective(problem, None, printed_penalty=False))
    penalty = gt.gradient_mean(problem, at, with_k3, **sizes) - gt.gradient_mean(plain, at, without, **sizes)
    found = gt.moments(plain, at)
    slopes = found.prompt_gradients / np.sqrt(found.value * (1.0 - found.value))[:, None]
    np.testing.assert_allclose(problem.bandit.prompt_weights @ slopes, -penalty, atol=1e-8)
