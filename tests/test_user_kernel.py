"""A user's ten lines: exact moments and simulation with no further code, and faults said in the words of the contract."""

import os
import subprocess
import sys

import numba
import numpy as np
import pytest
from enumeration import assert_law, batch_law, case

import grpo_theory as gt
from grpo_theory.estimation.kernel import centre
from grpo_theory.estimation.registry import make_estimator

SIZES = {"batch_size": 2, "group_size": 3}


def exact(kernel, c=None, **sizes):
    c = c or case("linear", "graded")
    return gt.gradient_law(c.problem, c.theta, kernel, **{**SIZES, **sizes})


@pytest.fixture
def shrunken(registry):
    @gt.estimator("shrunken", parameters={"weight": 0.7}, minimum_group_size=2)
    def shrunken(batch, advantages):
        """A = Z - weight * mean of the group - (1 - weight) * the norm of the score."""
        for b in range(batch.rewards.shape[0]):
            mean = batch.rewards[b].mean()
            for g in range(batch.rewards.shape[1]):
                rest = (1.0 - batch.parameters[0]) * batch.squared_score_norms[b, g]
                advantages[b, g] = batch.rewards[b, g] - batch.parameters[0] * mean - rest

    return shrunken


def test_ten_lines_outside_the_package_get_everything(shrunken, seed):
    assert shrunken is gt.estimators()["shrunken"]
    assert shrunken.reads == {"rewards", "squared_score_norms", "parameters"}
    assert shrunken.description.startswith("A = Z - weight")
    cases = case("linear", "graded"), case("head", "binary", "kl")
    for c, kernel in zip(cases, ("shrunken", shrunken.with_parameters(weight=0.2)), strict=True):
        expected = batch_law(c, kernel if isinstance(kernel, gt.Estimator) else shrunken, 2, 3)
        assert_law(exact(kernel, c), expected)
        run = gt.simulate_gradients(c.problem, c.theta, kernel, **SIZES, replications=50_000, rng=seed(6))
        assert abs(run.mse[0] - expected.mse) < 4.9 * run.mse_standard_error[0]
        assert 9.8 * run.mse_standard_error[0] < 0.1 * expected.mse
    with pytest.raises(ValueError, match="group_size must be at least 2 for estimator 'shrunken', got 1"):
        exact("shrunken", group_size=1)


def no_such_field(batch, advantages):
    advantages[:, :] = batch.reward


def a_name_that_is_not_there(batch, advantages):
    advantages[:, :] = no_such_function(batch.rewards)  # noqa: F821


def centres_in_place(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        rewards = batch.rewards[b]
        rewards -= rewards.mean()
        advantages[b] = rewards


def fills_nothing(batch, advantages):
    advantages = batch.rewards  # noqa: F841


def draws_rarely(batch, advantages):
    advantages[:, :] = batch.rewards
    if batch.rewards[0, 0] == 0.123:
        advantages[0, 0] += np.random.normal()  # noqa: NPY002


def neighbour(batch, advantages):
    """Look at places."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - batch.rewards[b, g - 1]


def reads_the_next(batch, advantages):
    """Read the response after the last."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g + 1]


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


@numba.njit
def drawn_by_another():
    return 1.0 if np.random.random() < 1.0 else 0.0  # noqa: NPY002


def draws_by_another(batch, advantages):
    advantages[:, :] = batch.rewards * drawn_by_another()


CONTRACT = r"; a kernel is kernel\(batch, advantages\): it reads batch\.rewards, .* and fills advantages \(B, G\) in place"
PLACES = r"must give (each response an advantage that does not depend on its position|equal advantages)"
SAID = {
    no_such_field: (TypeError, rf"does not compile: Unknown attribute '\w+', in `.+`{CONTRACT}"),
    a_name_that_is_not_there: (TypeError, f"does not compile: name '.+' is not defined{CONTRACT}"),
    centres_in_place: (TypeError, f"'centres_in_place' writes on the batch, which is read-only: .*rewards -= .*{CONTRACT}"),
    draws_rarely: (TypeError, r"'draws_rarely' draws random numbers, by np\.random\.normal"),
    draws_by_another: (TypeError, r"'draws_by_another' draws random numbers, by np\.random\.random"),
    fills_nothing: (ValueError, r"must fill advantages, and leaves all of them as they are. Write into the array"),
    reads_the_next: (ValueError, r"'bad' fails .* IndexError: index 3 is out of bounds .*line \d+ of .*test_user_kernel"),
    raises_where_all_are_wrong: (ValueError, r"'bad' fails for a batch of \d x 3 responses: ValueError: all of them wrong"),
    divides_by_zero: (ValueError, r"'bad' must fill finite advantages"),
    neighbour: (ValueError, PLACES),
}


def drawn(*problem, **sizes):
    return gt.simulate_gradients(*problem, **sizes, replications=8, rng=0, workers=1)


def trained(*problem, **sizes):
    return gt.simulate_training(*problem, gt.Constant(0.1), **sizes, steps=4, replications=8, rng=0, workers=1)


USES = pytest.mark.parametrize("use", [gt.gradient_mse, drawn, trained])


@USES
def test_what_is_wrong_with_a_kernel_is_said(use):
    problem = gt.gallery.problem("tabular")
    for function, (error, message) in SAID.items():
        if message == PLACES and use is not gt.gradient_mse:
            continue  # a simulator has places
        with pytest.raises(error, match=message):
            use(problem, problem.theta, make_estimator("bad", function), **SIZES)


def batch_mean(batch, advantages):
    advantages[:, :] = batch.rewards - batch.rewards.mean()


def half_of_the_largest(batch, advantages):
    advantages[:, :] = batch.rewards - 0.5 * batch.rewards.max()


def the_longest(batch, advantages):
    advantages[:, :] = batch.rewards / batch.lengths.max()


def above_the_least(batch, advantages):
    advantages[:, :] = batch.rewards - batch.rewards.min()


COUPLED = [batch_mean, half_of_the_largest, the_longest, above_the_least]


@USES
@pytest.mark.parametrize("group_size", [2, 3, 16])
def test_kernels_that_couple_groups_unannounced_are_refused(group_size, use):
    """All multisets in one batch have both ends of every field, so that a maximum over the batch looks like a constant."""
    for function in COUPLED:
        problem = gt.gallery.problem("sequence-shared" if function is the_longest else "tabular")
        with pytest.raises(ValueError, match=r"estimator 'coupled' must .* other groups.* couples_groups=True"):
            use(problem, problem.theta, make_estimator("coupled", function), batch_size=2, group_size=group_size)


WEIGHTS, LONG = np.arange(6.0), np.ones(9)


def looks_up(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = WEIGHTS[int(batch.rewards[b, g])]


@USES
def test_an_index_that_depends_on_the_problems_rewards_is_found(use):
    """Rewards 3, 5 and 1000 index a table of six: made-up rewards between 0 and 1 do not tell."""
    made = gt.gallery.problem("linear")
    law, estimator = np.full((made.bandit.n_prompts, made.policy.n_responses, 3), 1.0 / 3.0), make_estimator("bad", looks_up)
    known, other = (
        gt.Problem(gt.Bandit.from_law([3.0, 5.0, most], law), made.policy, theta=made.theta) for most in (1.0, 1000.0)
    )
    use(known, known.theta, estimator, **SIZES)
    message = (
        r"'bad' fails for a group of this problem, with rewards \[.*1000.0.*\] .*IndexError: index \d+ is out of bounds .*line"
    )
    with pytest.raises(ValueError, match=message):
        use(other, other.theta, estimator, **SIZES)


def looks_the_length_up(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] * LONG[batch.lengths[b, g]]


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
