"""The studies of sequences: their tables against the library and brute force, and verdicts that follow the evidence."""

from itertools import product

import numpy as np
import pytest
from study_tables import computed

import grpo_theory as gt
from grpo_theory.evidence import judge
from grpo_theory.exact.multisets import multisets
from grpo_theory.harness.sides import study_of
from grpo_theory.harness.study import chunk_generator
from simulations.sequence import drift, group_mean_bounds, own_length, ratio_moments, score_bounds, update_terms
from simulations.sequence.divergences import at_held_prefixes, between, expected, gradient, token_logs
from simulations.sequence.language_model import FIRST, UPDATE, checkpoints, divergence, policies
from simulations.sequence.language_model_lengths import update_by
from simulations.sequence.parts import composed, mean_update, random_problem
from simulations.sequence.standardised import STANDARDISED, ascended
from simulations.sequence.stopping import fields, mean_path, stopping
from simulations.sequence.tokens import Family, Tokens
from simulations.training import standardised_optimum

TREES = [(2, 1, None), (2, 3, 1), (3, 2, 0), (2, 4, None)]


def problem_and_tokens(tree, seed=0):
    problem = random_problem(np.random.default_rng(seed), *tree, n_prompts=2, dimension=3)
    features = problem.policy.jacobian()
    tokens = [Tokens(problem.policy.paths, one @ problem.theta, one) for one in features]
    return problem, tokens


def judged(module):
    """Run a study as a quick run does, and judge its claims; by id and problem."""
    study = study_of(module)
    table = computed(study, True, lambda number, cell, chunk: chunk_generator(study.name, cell, 0, chunk))
    claims = study.claims(table)
    assert {one.statement.id for one in claims} <= set(study.decides)
    return judge(claims).set_index(["id", "problem"])


@pytest.mark.parametrize("tree", TREES)
def test_tokens_written_out_are_those_of_the_library(tree):
    problem, tokens = problem_and_tokens(tree)
    point = problem.at(problem.theta)
    np.testing.assert_allclose([one.probabilities for one in tokens], point.token_probabilities, rtol=1e-12)
    np.testing.assert_allclose([one.response_probabilities for one in tokens], point.probabilities, rtol=1e-12)
    np.testing.assert_allclose([one.response_scores for one in tokens], problem.policy.scores(problem.theta), atol=1e-13)
    for m, one in enumerate(tokens):
        rewards = problem.bandit.mean_reward[m]
        gradient = (one.response_probabilities * rewards) @ one.response_scores
        np.testing.assert_allclose(gradient, point.moments.prompt_gradients[m], atol=1e-13)
        own = np.abs(np.linalg.eigvalsh(gt.hessian(problem.at_prompt(m), problem.theta))).max()
        assert score_bounds.curvature(one, rewards) == pytest.approx(own, rel=1e-10)


@pytest.mark.parametrize(("n_responses", "group_size"), [(1, 3), (2, 64), (3, 4), (4, 5)])
def test_multisets_have_the_multinomial_law(n_responses, group_size):
    p = np.random.default_rng(0).dirichlet(np.ones(n_responses))
    counts, weights = multisets(n_responses, group_size), group_mean_bounds.multiset_probabilities(p, group_size)
    assert (counts.sum(axis=1) == group_size).all()
    assert weights.sum() == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_allclose(weights @ counts, group_size * p, rtol=1e-11)


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


def surrogate_slope(problem, theta, rollout, kind):
    """Return the gradient of a surrogate by a step along the imaginary axis: min with clip by sign, or min(rho, 1 + e)."""
    features = problem.policy.jacobian()
    paths, slope = problem.policy.paths, np.zeros(3)

    def token_logs(m, vector):
        logits = (features[m] @ vector).reshape(-1, paths.vocabulary_size)
        return (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).reshape(-1)

    for i in range(3):
        vector = theta + 1e-30j * np.eye(3)[i]
        for m, drawn in enumerate(rollout.drawn):
            logs = token_logs(m, vector) - token_logs(m, problem.theta)
            for k, weight, advantage in zip(drawn, rollout.weights[m], rollout.advantages[m], strict=True):
                ratios = np.exp(logs[paths.edges[k, : paths.lengths[k]]])
                if kind == "T2":
                    rho = np.prod(ratios)
                    slope[i] += weight * advantage * (rho if rho.real <= 1.28 else 1.28).imag / 1e-30 / paths.horizon
                    continue
                high = 1.28 if advantage >= 0.0 else np.inf
                low = 0.8 if advantage < 0.0 else 0.0
                kept = ratios[(ratios.real <= high) & (ratios.real >= low)]
                slope[i] += weight * advantage * kept.sum().imag / 1e-30 / paths.lengths[k]
    return slope


@pytest.mark.parametrize("kind", ["T1", "T2"])
@pytest.mark.parametrize("reading", update_terms.READINGS)
def test_the_update_is_the_slope_of_the_surrogate(kind, reading):
    problem, _ = problem_and_tokens((2, 3, 1))
    theta = problem.theta + np.array([0.5, -0.4, 0.3])
    rollout = update_terms.Rollout(problem, theta, reading, np.random.default_rng(2))
    clip = update_terms.CLIPS["by sign" if kind == "T1" else "upper only"].with_widths(0.2, 0.28)
    parts = ("token", clip, "own length") if kind == "T1" else ("trajectory", clip, "constant")
    found = rollout.update(composed("dr_grpo", *parts))
    np.testing.assert_allclose(found, surrogate_slope(problem, theta, rollout, kind), atol=1e-12)


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


def test_of_one_token_no_ratio_estimates_the_old_gradient_exactly():
    problem = random_problem(np.random.default_rng(4), 3, 1, None, n_prompts=1, dimension=3)
    theta = problem.theta + 0.4
    sizes = {"batch_size": 1, "group_size": 4}
    mean = gt.gradient_mean(problem, theta, composed("rloo", "none"), **sizes, behaviour=problem.theta)
    np.testing.assert_allclose(mean, gt.moments(problem, problem.theta).gradient, atol=1e-14)


def test_the_sharp_bound_of_the_gradient_is_attained_by_an_even_policy_of_two_tokens():
    family = Family(2, 1)
    x = np.array([0.0, 1.0, -1.0, 1.0, 0.0])  # logit, feature, rewards, drift
    left, right = score_bounds.gradient(*family.at(x))
    assert left / right * score_bounds.SHARPER["T5/gradient"](2) == pytest.approx(1.0, rel=1e-12)
    assert left / right == pytest.approx(1.0 / np.sqrt(2.0 * np.log(2.0)), rel=1e-12)


def test_the_second_moment_grows_no_faster_than_its_bound():
    found = judged(ratio_moments)
    assert set(found["verdict"]) == {"confirmed"}
    assert found["power"].all()
    p, rho = np.array([0.5, 0.5]), np.array([0.5, 1.5])
    at = ratio_moments.moments(p, rho)
    expected = {
        "trajectory": 1.25,
        "dropped": 0.125,
        "capped": 0.845,
        "doubled": 2.5625,
        "share dropped": 0.5,
        "mass dropped": 0.75,
    }
    assert at == pytest.approx(expected)


@pytest.mark.parametrize("aggregation", ["sum", "own length", "constant"])
@pytest.mark.parametrize("kind", own_length.KINDS)
def test_the_mean_update_is_that_of_all_groups(kind, aggregation):
    problem = own_length.problem_of(kind, np.random.default_rng(0))
    theta = 0.3 * np.random.default_rng(1).normal(size=problem.policy.dimension)
    for advantage, group_size in (("rloo", 2), ("rloo", 4), ("reinforce", 2)):
        rule = composed(advantage, "none", "none", aggregation)
        if advantage == "rloo" and problem.kl is not None and group_size > 2:
            continue
        exact = gt.gradient_mean(problem, theta, rule, batch_size=1, group_size=group_size)
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
    for equal in (False, True):
        problem = stopping(3, equal)
        assert set(problem.policy.paths.lengths) == ({3} if equal else {1, 2, 3})
        for theta in (-0.7, 0.4):
            expected = 0.5 * (1.0 - logistic(theta) + logistic(2.0 * theta))
            assert gt.objective(problem, [theta]) == pytest.approx(expected, rel=1e-12)
    best = gt.find_optimum(stopping(2, False), np.ones(1))
    assert best == pytest.approx([1.0613], abs=1e-4)


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


def test_checkpoints_are_updates_by_a_constant_step_the_first_of_the_stated_length():
    problem = small()
    found = checkpoints(problem, UPDATE, (1, 2, 3), 4)
    assert divergence(problem, problem.theta, found[1]) == pytest.approx(FIRST, rel=0.01)
    steps = [found[1] - problem.theta, found[2] - found[1], found[3] - found[2]]
    sizes = {"batch_size": 1, "group_size": 4, "behaviour": problem.theta}
    means = [gt.gradient_mean(problem, theta, UPDATE, **sizes) for theta in (problem.theta, found[1], found[2])]
    ratio = np.linalg.norm(steps[0]) / np.linalg.norm(means[0])
    for step, mean in zip(steps, means, strict=True):
        np.testing.assert_allclose(step, ratio * mean, rtol=1e-9, atol=1e-12)


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


@pytest.fixture
def problem():
    """Sequences of one or two tokens, with a penalty."""
    return gt.gallery.problem("kl-sequence")


def by_sums(policy, reference, prompt_weights):
    """Return KL(policy || reference) from the probabilities of whole responses."""
    return prompt_weights @ (policy * np.log(policy / reference)).sum(axis=1)


def test_token_logs_are_those_of_the_policy(problem):
    """At real parameters the complex logs are the point's."""
    theta = np.array([0.4, -0.9])
    np.testing.assert_allclose(token_logs(problem, theta), problem.at(theta).token_log_probabilities, atol=1e-15)


def test_divergence_of_whole_responses(problem):
    """Summed along tokens it is that of the responses' probabilities, and its gradient that of a central difference."""
    theta, weights, reference = np.array([0.4, -0.9]), problem.bandit.prompt_weights, np.asarray(problem.kl.reference)

    def value(at):
        return by_sums(problem.at(at).probabilities, reference, weights)

    divergence = between(problem, problem.log_reference)
    assert divergence(token_logs(problem, theta)) == pytest.approx(value(theta), rel=1e-13)
    steps = 1e-5 * np.eye(2)
    differences = [(value(theta + step) - value(theta - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(gradient(problem, divergence, theta), differences, rtol=1e-8)


def test_held_prefixes_and_held_responses_agree(problem):
    """The mean over responses of sum_t term is the mean over prefixes of the tokens' mean term, of one policy."""
    here = problem.at([0.4, -0.9])
    own = here.token_log_probabilities
    over_responses = expected(problem, here, lambda logs: logs**2)(own)
    over_prefixes = at_held_prefixes(problem, here, lambda logs: np.exp(own) * logs**2)(own)
    assert over_responses == pytest.approx(over_prefixes, rel=1e-13)


def slope(p, group_size):
    """Return h' by a step along the imaginary axis."""
    return float(ascended(np.array([p + 1e-30j]), group_size).imag[0] / 1e-30)


@pytest.mark.parametrize("group_size", [2, 3, 6])
@pytest.mark.parametrize("p", [0.03, 0.4, 0.9])
def test_slope_is_the_mean_update_over_all_groups(group_size, p):
    """Two responses, one always right and one always wrong: the score of the right one's logit is 1{right} - p."""
    total = 0.0
    for rewards in product([0.0, 1.0], repeat=group_size):
        z = np.array(rewards)
        if z.std() > 0.0:
            others = (z.sum() - z) / (group_size - 1)
            total += np.prod(np.where(z == 1.0, p, 1.0 - p)) * np.mean((z - others) / z.std(ddof=1) * (z - p))
    assert slope(p, group_size) * p * (1.0 - p) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("group_size", [2, 3, 8, 64])
def test_what_the_study_ascends_is_what_the_library_derives_from_the_kernel(group_size):
    """Two ways to h: a sum of binomial tails with closed weights, and the kernel's own advantages, multiset by multiset."""
    p = np.linspace(0.0, 1.0, 11)
    found = gt.theory.finite_group_objective(STANDARDISED, group_size)
    np.testing.assert_allclose(found.value(p), ascended(p, group_size), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.slope(p[1:-1]), [slope(one, group_size) for one in p[1:-1]], rtol=1e-11)


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
