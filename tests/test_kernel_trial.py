"""The first use of a kernel: faults that compiled code would pass over are found, and said in words."""

import os
import subprocess
import sys
import types

import numba
import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.estimation.kernel import centre
from grpo_theory.estimation.registry import make_estimator

PROBLEM = gt.gallery.problem("linear")
SIZES = {"batch_size": 4, "group_size": 4}


def train(estimator, **more):
    asked = SIZES | {"steps": 4, "replications": 4, "rng": 1} | more
    return gt.simulate_training(PROBLEM, PROBLEM.theta, estimator, gt.Constant(0.1), **asked)


def simulate(estimator):
    return gt.simulate_gradients(PROBLEM, PROBLEM.theta, estimator, replications=64, rng=1, **SIZES)


def enumerate_exactly(estimator):
    return gt.gradient_mse(PROBLEM, PROBLEM.theta, estimator, **SIZES)


EVERYWHERE = pytest.mark.parametrize("use", [train, simulate, enumerate_exactly])


def reads_the_next(batch, advantages):
    """Read the response after the last."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g + 1]


def writes_on_the_next(batch, advantages):
    """Write behind the last response."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1] + 1):
            advantages[b, g] = batch.squared_score_norms[b, 0]


def raises_where_all_are_wrong(batch, advantages):
    """Raise."""
    for b in range(batch.rewards.shape[0]):
        if batch.rewards[b].sum() == 0.0:
            raise ValueError("all of them wrong")
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.squared_score_norms[b, g]


def divides_by_zero(batch, advantages):
    """Divide by a standard deviation that may be 0, by way of a Python float and a root."""
    for b in range(batch.rewards.shape[0]):
        spread = centre(batch.rewards[b], advantages[b])
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] /= np.sqrt(spread)


@EVERYWHERE
@pytest.mark.parametrize("kernel", [reads_the_next, writes_on_the_next])
def test_an_index_out_of_bounds_is_found_before_compiled_code_runs(kernel, use):
    line = kernel.__code__.co_firstlineno + 4
    with pytest.raises(ValueError, match=rf"'bad' fails .* IndexError: index 4 is out of bounds .*line {line} of .*test_kernel"):
        use(make_estimator("bad", kernel))


@EVERYWHERE
def test_what_a_kernel_raises_is_said_in_its_own_words(use):
    with pytest.raises(ValueError, match=r"'bad' fails for a batch of 3 x 4 responses: ValueError: all of them wrong"):
        use(make_estimator("bad", raises_where_all_are_wrong))


@EVERYWHERE
def test_an_advantage_that_is_not_finite_is_an_error_and_no_divergence(use):
    with pytest.raises(ValueError, match=r"'bad' must fill finite advantages"):
        use(make_estimator("bad", divides_by_zero))


WEIGHTS = np.arange(6.0)


@numba.njit
def looked_up(reward):
    return WEIGHTS[int(reward)]


lookups = types.ModuleType("lookups")
lookups.looked_up = looked_up


def looks_up(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = WEIGHTS[int(batch.rewards[b, g])]


def looks_the_value_up(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - WEIGHTS[int(batch.values[b])]


@EVERYWHERE
def test_an_index_that_depends_on_the_problems_rewards_is_found(use, monkeypatch):
    """Rewards 3, 5 and 1000 index a table of six: made-up rewards between 0 and 1 do not tell."""
    law = np.full((PROBLEM.bandit.n_prompts, PROBLEM.policy.n_responses, 3), 1.0 / 3.0)
    problems = [gt.Problem(gt.Bandit.from_law(values, law), PROBLEM.policy, theta=PROBLEM.theta) for values in LAWS]
    message = (
        r"'bad' fails for a group of this problem, with rewards \[.*1000.0.*\] .*IndexError: index \d+ is out of bounds .*line"
    )
    for kernel in (looks_up, looks_the_value_up):
        monkeypatch.setattr(sys.modules[__name__], "PROBLEM", problems[0])
        use(make_estimator("bad", kernel))
        monkeypatch.setattr(sys.modules[__name__], "PROBLEM", problems[1])
        with pytest.raises(ValueError, match=message):
            use(make_estimator("bad", kernel))


LAWS = ([3.0, 5.0, 1.0], [3.0, 5.0, 1000.0])


def looks_the_length_up(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] * LONG[batch.lengths[b, g]]


LONG = np.ones(9)


@pytest.mark.parametrize("use", [gt.gradient_mse, gt.simulate_gradients])
def test_an_index_that_depends_on_the_problems_lengths_is_found(use):
    """Made-up lengths are 1 to 8; this problem has answers of 12 tokens."""
    policy = gt.TokenTree(1, 2, 12, end_token=0)
    problem = gt.Problem(gt.Bandit(np.linspace(0.0, 1.0, policy.n_responses)[None]), policy)
    more = {} if use is gt.gradient_mse else {"replications": 8, "rng": 0}
    with pytest.raises(ValueError, match=r"with rewards .* and lengths \[9, .*\]: IndexError: index 9 is out of bounds"):
        use(problem, np.zeros(problem.policy.dimension), make_estimator("bad", looks_the_length_up), **SIZES, **more)


SCRIPT = """
import grpo_theory as gt
for name, estimators in (("linear", ("grpo", "optimal_loo")), ("sequence-shared", ("tic_grpo",))):
    p = gt.gallery.problem(name)
    sizes = {"batch_size": 2, "group_size": 3}
    for estimator in estimators:
        print(gt.gradient_mse(p, p.theta, estimator, **sizes))
        print(*gt.simulate_gradients(p, p.theta, estimator, replications=3, rng=1, workers=1, **sizes).mse)
        found = gt.simulate_training(p, p.theta, estimator, gt.Constant(0.1), steps=2, replications=2, rng=1, workers=1, **sizes)
        print(*found.theta[0])
"""


def test_without_the_compiler_everything_runs_and_gives_the_same():
    def run(**more):
        asked = [sys.executable, "-W", "error", "-c", SCRIPT]
        done = subprocess.run(asked, env=os.environ | more, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return np.array(done.stdout.split(), dtype=np.float64)

    compiled, slow = run(), run(NUMBA_DISABLE_JIT="1")
    np.testing.assert_allclose(slow, compiled, rtol=1e-10)
