"""A thousand million responses for each of three problems: means and errors are those of exact theory, to five digits or so."""

import numpy as np
import pytest

import grpo_theory as gt

RESPONSES = 10**9
LIMIT = 4.9
"""Standard errors, twice as likely to be exceeded as one in a million."""
CASES = [("tabular", "grpo", 8, 64), ("sequence-shared", "rloo", 8, 64), ("lm-few-shot", "oracle", 4, 128)]


@pytest.mark.parametrize(("name", "estimator", "batch_size", "group_size"), CASES)
def test_a_billion_responses_agree_with_exact_theory(name, estimator, batch_size, group_size, seed):
    problem = gt.gallery.problem(name)
    sizes = {"batch_size": batch_size, "group_size": group_size}
    directions = np.random.default_rng(3).normal(size=(2, problem.policy.dimension))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    found = gt.simulate_gradients(
        problem,
        problem.theta,
        estimator,
        **sizes,
        replications=RESPONSES // (batch_size * group_size),
        directions=directions,
        rng=seed(17),
    )
    law = gt.gradient_law(problem, problem.theta, estimator, **sizes)
    deviations = [
        (found.mse[0] - law.mse) / found.mse_standard_error[0],
        (found.prompt_mse[0] - law.prompt_mse) / found.prompt_mse_standard_error[0],
        *((found.along[0] - directions @ law.mean) / found.along_standard_error[0]),
    ]
    assert np.abs(deviations).max() < LIMIT
    # One per cent of the law is seen from afar: the check is not blind.
    assert 0.01 * law.mse > 2.0 * LIMIT * found.mse_standard_error[0]
    assert 0.01 * law.prompt_mse > 2.0 * LIMIT * found.prompt_mse_standard_error[0]
