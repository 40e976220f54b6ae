"""The prompts of the studies of normalisation are as correlated, and as hard, as they are asked to be."""

import numpy as np
import pytest

import grpo_theory as gt
from simulations.normalisation.prompts import mixture, prompts


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.9])
def test_prompts_have_the_success_rates_and_correlations_that_are_asked_for(correlation):
    rates = mixture("easy and hard", 6)
    problem = prompts(correlation, rates)
    np.testing.assert_allclose(gt.moments(problem, problem.theta).value, rates, rtol=1e-12)
    x = problem.policy.logit_map.features
    products = np.einsum("iad,jbd->ijab", x, x)
    between = np.where(np.eye(6, dtype=bool), 1.0, correlation)
    np.testing.assert_allclose(products, between[:, :, None, None] * np.eye(4), atol=1e-14)
