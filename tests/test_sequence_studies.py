"""The studies of sequences: their tables against the library and brute force, and verdicts that follow the evidence."""

from itertools import product

import numpy as np
import pytest
from study_tables import computed

import grpo_theory as gt
from grpo_theory.evidence import judge
from grpo_theory.exact.multisets import multisets
from grpo_theory.harness.sides import joined, study_of
from grpo_theory.harness.study import chunk_generator
from simulations.sequence import (
    drift,
    group_mean_bounds,
    own_length,
    ratio_moments,
    score_bounds,
    stationarity,
    update_terms,
)
from simulations.sequence.parts import composed, features_of, mean_update, random_problem
from simulations.sequence.stopping import fields, mean_path, stopping
from simulations.sequence.tokens import Family, Tokens

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


@pytest.mark.parametrize("tree", TREES)
def test_scores_are_lipschitz_with_the_constant_and_with_no_smaller_one(tree):
    """``v' Cov(phi) v`` over all laws of a prefix's tokens and all unit vectors is at most L, with half the mass on each end."""
    _, (tokens, _) = problem_and_tokens(tree)
    assert tokens.lipschitz == pytest.approx(1.0)
    at = tokens.features.reshape(-1, tree[0], 3)

    def sides(x):
        shares = np.exp(x[: tree[0]])
        shares /= shares.sum()
        direction = x[tree[0] :] / (np.linalg.norm(x[tree[0] :]) + 1e-12)
        along = at @ direction
        return float((along**2 @ shares - (along @ shares) ** 2).max()), tokens.lipschitz

    found = gt.worst_case(sides, [(-6.0, 6.0)] * tree[0] + [(-1.0, 1.0)] * 3, rng=0, starts=64, climbs=4)
    assert found.attained
    assert not found.violated


def test_features_are_scaled_at_every_prefix():
    paths = gt.TokenTree(1, 3, 3, 0).paths
    features = features_of(np.random.default_rng(1), 2, paths, 4).reshape(2, -1, 3, 4)
    farthest = ((features[:, :, :, None] - features[:, :, None]) ** 2).sum(axis=-1).max(axis=(2, 3))
    np.testing.assert_allclose(farthest, 4.0)


def test_a_familys_parameters_have_their_places():
    family = Family(3, 2, 0)
    assert family.name == "T = 2, V = 3, end token"
    assert family.sizes == (6, 12, 7, 6)
    x = np.arange(31.0)
    old, now, rewards = family.at(x)
    assert old.logits.reshape(3, 3).tolist() == [[0, 0, 1], [0, 2, 3], [0, 4, 5]]
    assert (now.logits - old.logits).reshape(3, 3).tolist() == [[0, 25, 26], [0, 27, 28], [0, 29, 30]]
    assert old.features.shape == (9, 2)
    assert rewards.tolist() == list(range(18, 25))
    assert family.bounds(8.0, 2.0, 1.0)[0] == (-8.0, 8.0)
    assert family.bounds(8.0, 2.0, 1.0)[-1] == (-2.0, 2.0)


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


def test_the_decompositions_hold_as_corrected_and_not_as_printed():
    found = judged(update_terms)
    assert found["power"].all()
    for reading in update_terms.READINGS:
        verdicts = found.xs(reading, level="problem")["verdict"]
        assert verdicts[["T1/corrected", "T2/corrected"]].tolist() == ["confirmed"] * 2
        assert verdicts[["T1/printed", "T2/printed", "T2/sign"]].tolist() == ["refuted"] * 3


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


def test_what_updates_off_policy_estimate():
    found = judged(drift)
    assert found["power"].all()
    for name in ("T6/corrected", "T7/leave-one-out", "T7/own mean", "T7/corrected"):
        assert (found.loc[name, "verdict"] == "confirmed").all(), name
    for name in ("T6/printed", "T7/printed"):
        assert (found.loc[name, "verdict"] == "refuted").all(), name
    of_one_token = found.xs("T = 1, learning, drift 1", level="problem")["verdict"]
    assert of_one_token[["T6/most", "T6/no ratio"]].tolist() == ["refuted", "confirmed"]
    assert (found.loc["T6/no ratio", "verdict"] == "confirmed").all()
    costs = found.loc["T8/token", "estimate"]
    assert (costs[["drift 0.1" in name for name in costs.index]] < 0.01).all()


def test_a_tree_is_the_same_whatever_else_is_asked():
    quick, full = ({cell.settings["horizon"]: cell.settings for cell in study_of(drift).cells(quick)} for quick in (True, False))
    assert {horizon: full[horizon] for horizon in quick} == quick


def test_what_is_not_a_number_is_no_evidence_about_trees():
    found = joined([drift.moved(2, 2, np.random.default_rng(0), 0)])
    for direction, by in (("random", 0.1), ("learning", 1.0)):
        at = found[f"{direction} {by:g}"]
        assert set(drift.on_most_trees(found, 2, direction, by)) == {one.id for one in drift.on_most_trees.statements}
        at["tic"]["cosine"][0] = np.nan
        with pytest.raises(ValueError, match="must be a number"):
            drift.on_most_trees(found, 2, direction, by)


def test_of_one_token_no_ratio_estimates_the_old_gradient_exactly():
    problem = random_problem(np.random.default_rng(4), 3, 1, None, n_prompts=1, dimension=3)
    theta = problem.theta + 0.4
    sizes = {"batch_size": 1, "group_size": 4}
    mean = gt.gradient_mean(problem, theta, composed("rloo", "none"), **sizes, behaviour=problem.theta)
    np.testing.assert_allclose(mean, gt.moments(problem, problem.theta).gradient, atol=1e-14)


def test_bounds_on_norms_hold_and_smaller_ones_do_not():
    found = judged(score_bounds)
    assert set(found["verdict"]) == {"confirmed"}
    assert found["power"].all()
    assert {name for name, _ in found.index} == set(study_of(score_bounds).decides)


def test_the_sharp_bound_of_the_gradient_is_attained_by_an_even_policy_of_two_tokens():
    family = Family(2, 1)
    x = np.array([0.0, 1.0, -1.0, 1.0, 0.0])  # logit, feature, rewards, drift
    left, right = score_bounds.gradient(*family.at(x))
    assert left / right * score_bounds.SHARPER["T5/gradient"](2) == pytest.approx(1.0, rel=1e-12)
    assert left / right == pytest.approx(1.0 / np.sqrt(2.0 * np.log(2.0)), rel=1e-12)


def test_what_the_groups_mean_adds_is_bounded_as_corrected():
    verdicts = judged(group_mean_bounds).droplevel("problem")["verdict"]
    assert verdicts[["T12/X2, R=1", "T12/X2/corrected", "T12/Y1/corrected"]].tolist() == ["confirmed"] * 3
    assert verdicts[["T12/X2", "T12/Y1", "T12/Y1, R=1"]].tolist() == ["refuted"] * 3


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


def test_own_length_moves_a_shared_optimum_and_no_tabular_one():
    found = judged(own_length)
    assert found["power"].all()
    verdicts = found.loc["T15/optimum", "verdict"]
    assert verdicts["tabular, KL, 1"] == "confirmed"
    assert verdicts["shared features, KL, 1"] == verdicts["stop or go on"] == "refuted"


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


def test_rates_of_convergence():
    found = judged(stationarity)
    assert found["power"].all()
    for name in ("T9/limit", "T9/G", "T11/floor"):
        assert (found.loc[name, "verdict"] == "refuted").all(), name
    for name in ("T9/corrected", "T10/limit", "T10/N", "T11/T"):
        assert (found.loc[name, "verdict"] == "confirmed").all(), name
