"""Large problems: memory grows with the tables that a problem consists of, and what must be dense is refused with its size."""

import tracemalloc

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.problem.logits import HeadMap, LogitMap, Paths, TabularMap

SIZES = {"batch_size": 4, "group_size": 4}
DRAWN = {"rng": 0, "workers": 1}


def tabular(n_prompts, n_responses):
    """Return a problem with a logit for every prompt and response."""
    success = np.random.default_rng(0).uniform(size=(n_prompts, n_responses))
    return gt.Problem(gt.Bandit(success), gt.TabularSoftmax(n_prompts, n_responses))


CALLS = {
    "moments": lambda p: gt.moments(p, p.theta),
    "objective": lambda p: gt.objective(p, p.theta),
    "gradient_mse": lambda p: gt.gradient_mse(p, p.theta, "grpo", **SIZES),
    "efficiency": lambda p: gt.efficiency(p, p.theta, "rloo", **SIZES),
    "group_size_law": lambda p: gt.theory.group_size_law(p, p.theta),
    "simulate_gradients": lambda p: gt.simulate_gradients(p, p.theta, "rloo", replications=64, **DRAWN, **SIZES),
    "simulate_training": lambda p: gt.simulate_training(
        p, p.theta, "rloo", gt.Constant(0.1), steps=2, replications=2, **DRAWN, **SIZES
    ),
}
LARGE = {"20,000 prompts": (20_000, 2), "20,000 answers": (1, 20_000)}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("large", LARGE)
def test_a_large_tabular_problem_takes_no_square_of_its_size(call, large):
    """A square would take 3 or 6 GB; the tables have 40,000 numbers, and the simulators' lanes 128 of each."""
    problem = tabular(*LARGE[large])
    CALLS[call](tabular(*np.minimum(LARGE[large], 50)))  # compiles, which takes memory too
    tracemalloc.start()
    CALLS[call](problem)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (500e6 if call.startswith("simulate") else 50e6)


DENSE = {
    "derivatives of all logits": lambda many, wide: wide.policy.jacobian(),
    "gradient of each prompt": lambda many, wide: gt.moments(many, many.theta).prompt_gradients,
    "scores of all responses": lambda many, wide: many.policy.scores(many.theta),
    "scores of all responses as logit gradients": lambda many, wide: wide.at(wide.theta).logit_gradients,
    "matrix of all pairs of parameters": lambda many, wide: gt.hessian(tabular(20_000, 2), np.zeros(40_000)),
    "table of responses and edges": lambda many, wide: wide.policy.paths.incidence,
    "inner products of all logits": lambda many, wide: wide.policy.logit_map.gram(),
}


@pytest.mark.parametrize("what", DENSE)
def test_what_must_be_dense_is_refused_with_its_size_and_what_to_do(what):
    many, wide = (tabular(*LARGE[large]) for large in LARGE)
    tracemalloc.start()
    message = rf"the {what.split(',')[0]}, of shape \([\d, ]+\), would take [\d.,]+ GB, over 2: \w+"
    with pytest.raises(ValueError, match=message):
        DENSE[what](many, wide)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


TREE = gt.TokenTree(3, 3, 3, end_token=0).paths


@pytest.mark.parametrize("paths", [Paths(np.arange(5)[:, None], 5), TREE], ids=["bandit", "tree"])
@pytest.mark.parametrize("width", [0, 4])
@pytest.mark.parametrize("sharpness", [1.0, 40.0])
def test_norms_of_scores_without_their_table(paths, width, sharpness):
    """Against logit gradients written out, near-deterministic policies too, whose norms are tiny and have all their digits."""
    rng = np.random.default_rng(7)
    logit_map: LogitMap = HeadMap(rng.normal(size=(3, width)), paths.n_logits) if width else TabularMap(3, paths.n_logits)
    probabilities = np.exp(paths.log_probabilities(sharpness * rng.normal(size=(3, paths.n_logits))))
    found = logit_map.token_products(paths, probabilities)
    expected = LogitMap.token_products(logit_map, paths, probabilities)
    if paths.horizon == 1:
        np.testing.assert_allclose(found, expected, rtol=1e-13)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13 * expected.max())
    assert found.shape == expected.shape
