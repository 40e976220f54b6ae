"""The bandit, and the problem that bundles it with a policy: what they hold, and what they refuse."""

import numpy as np
import pytest
from enumeration import PENALTIES, POLICIES, REWARDS, case, prompts

import grpo_theory as gt


@pytest.mark.parametrize(
    ("prompt", "error", "message"),
    [
        (3, ValueError, r"prompt must be below the number of prompts 3, got 3"),
        (-1, ValueError, r"prompt must be at least 0, got -1"),
        (1.0, TypeError, r"prompt must be an integer of at least 0, got 1\.0"),
        (True, TypeError, r"prompt must be an integer of at least 0, got True"),
    ],
)
def test_at_prompt_refuses_what_is_no_prompt(prompt, error, message):
    with pytest.raises(error, match=message):
        gt.Bandit(np.full((3, 2), 0.5)).at_prompt(prompt)


@pytest.mark.parametrize(
    ("success", "message"),
    [
        ([[0.5, 1.5]], r"success must lie in \[0, 1\], got 1\.5 at index \(0, 1\)"),
        (
            [[-0.25, 0.5]],
            r"success must lie in \[0, 1\], got -0\.25 at index \(0, 0\): these are .* gt\.Bandit\.from_law\(values",
        ),
        ([[0.5, np.nan]], r"success must be finite, got nan at index \(0, 1\)"),
        ([[0.5], [np.inf]], r"success must be finite, got inf at index \(1, 0\)"),
        ([0.5, 0.5], r"success must have 2 dimensions, got shape \(2,\)"),
        ([[]], r"success must not be empty, got shape \(1, 0\)"),
        ([[0.5, 0.5], [0.5]], r"success must be an array of real numbers with 2 dimensions"),
        ([["half"]], r"success must be an array of real numbers with 2 dimensions"),
        (None, r"success must have 2 dimensions, got shape \(\)"),
    ],
)
def test_success_must_be_probabilities(success, message):
    with pytest.raises(ValueError, match=message):
        gt.Bandit(success)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.5, 0.25, 0.25], r"prompt_weights must have shape \(2,\) = \(M,\), one for each prompt, got \(3,\)"),
        ([1.5, -0.5], r"prompt_weights must lie in \[0, 1\], got 1\.5 at index \(0,\)"),
        ([0.5, 0.25], r"prompt_weights must sum to 1 along the last axis, got a sum of 0\.75"),
        ([np.nan, 1.0], r"prompt_weights must be finite, got nan at index \(0,\)"),
        ([[0.5, 0.5]], r"prompt_weights must have 1 dimensions, got shape \(1, 2\)"),
    ],
)
def test_prompt_weights_must_be_a_distribution(weights, message):
    with pytest.raises(ValueError, match=message):
        gt.Bandit([[0.5], [0.5]], weights)


@pytest.mark.parametrize(
    ("values", "law", "message"),
    [
        ([0, 1, 1], np.full((1, 1, 3), 1 / 3), r"values must be distinct, got \[0\.0, 1\.0, 1\.0\]"),
        ([0, 1], np.full((1, 1, 3), 1 / 3), r"probabilities must have shape \(1, 1, 2\) = \(M, K, L\), got \(1, 1, 3\)"),
        ([0, 1], [[[0.5, 0.4]]], r"probabilities must sum to 1 .* got a sum of 0\.9 at index \(0, 0\)"),
        ([0, 1], [[[1.25, -0.25]]], r"probabilities must lie in \[0, 1\], got 1\.25 at index \(0, 0, 0\)"),
        ([0, 1], [[0.5, 0.5]], r"probabilities must have 3 dimensions, got shape \(1, 2\)"),
        ([0, np.inf], [[[0.5, 0.5]]], r"values must be finite, got inf at index \(1,\)"),
        ([], [[[]]], r"values must not be empty"),
    ],
)
def test_a_law_must_be_a_distribution_on_distinct_values(values, law, message):
    with pytest.raises(ValueError, match=message):
        gt.Bandit.from_law(values, law)


TWO = gt.Bandit([[0.5, 0.5], [0.1, 0.2]]), gt.TabularSoftmax(2, 2)


def test_parts_that_do_not_fit_are_refused_by_name():
    """Each call, and what its message must hold."""
    refused = [
        (lambda: gt.Problem([[0.5, 0.5]], TWO[1]), "bandit must be a Bandit, got \\[\\[0\\.5, 0\\.5\\]\\]"),
        (lambda: gt.Problem(TWO[0], "tabular"), "policy must be a Policy, got 'tabular'"),
        (lambda: gt.Problem(*TWO, 0.1), "kl must be a KL\\(strength, reference\\) or None, got 0\\.1"),
        (
            lambda: gt.Problem(TWO[0], gt.TokenTree(2, 2, 2)),
            "policy must have the bandit's \\(M, K\\) = \\(2, 2\\), got \\(2, 4\\)",
        ),
        (
            lambda: gt.Problem(*TWO, gt.KL(1.0, [[0.5, 0.5]])),
            "reference must have shape \\(2, 2\\) = \\(M, K\\), the policy's prompts and responses, got \\(1, 2\\)",
        ),
        (lambda: gt.Problem(*TWO, theta=np.zeros(3)), "theta must have shape \\(4,\\) = \\(d,\\), the policy's parameters"),
        (lambda: gt.Problem(*TWO, theta=[0, 0, np.nan, 0]), "theta must be finite, got nan at index \\(2,\\)"),
        (lambda: gt.Problem(*TWO).at(np.zeros((2, 2))), "theta must have 1 dimensions, got shape \\(2, 2\\)"),
        (lambda: gt.Problem(*TWO).at_prompt(2), "prompt must be below the number of prompts 2, got 2"),
    ]
    for make, message in refused:
        with pytest.raises((TypeError, ValueError), match=message):
            make()


@pytest.mark.parametrize("name", ["kl-tabular", "sequence-shared"])
def test_at_prompt_keeps_all_but_the_weights(name):
    problem = gt.gallery.problem(name)
    one = problem.at_prompt(1)
    assert one.bandit.prompt_weights.tolist() == [float(m == 1) for m in range(problem.bandit.n_prompts)]
    assert (one.policy, one.kl, one.name, one.title) == (problem.policy, problem.kl, problem.name, problem.title)
    assert np.array_equal(one.theta, problem.theta)
    both, alone = gt.moments(problem, problem.theta), gt.moments(one, problem.theta)
    np.testing.assert_allclose(alone.gradient, both.prompt_gradients[1], rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_tables_of_a_point_are_the_outcomes_written_out(policy, rewards, penalty):
    c = case(policy, rewards, penalty)
    point = c.problem.at(c.theta)
    shape, values = point.probabilities.shape, len(c.bandit.values)
    assert point.outcome_responses.tolist() == [k for k in range(shape[1]) for _ in range(values)]
    np.testing.assert_allclose(point.probabilities, c.policy.probabilities(c.theta), rtol=1e-14)
    for m, table in enumerate(prompts(c)):
        np.testing.assert_allclose(point.outcome_probabilities[m], table.probabilities, rtol=1e-13, atol=1e-16)
        np.testing.assert_allclose(point.rewards[m], table.rewards, rtol=1e-13, atol=1e-14)
        norms = (table.scores**2).sum(axis=1)
        np.testing.assert_allclose(point.squared_score_norms[m, point.outcome_responses], norms, rtol=1e-12, atol=1e-14)
        scores = np.einsum("kd,de->ke", point.covectors[m], c.features[m])
        np.testing.assert_allclose(scores[point.outcome_responses], table.scores, rtol=1e-12, atol=1e-14)
