"""A user's ten lines: exact moments and simulation with no further code, and errors in the words of the contract."""

import importlib.util

import numba
import numpy as np
import pytest
from enumeration import batch_law, case

import grpo_theory as gt
from grpo_theory.estimation.registry import make_estimator

SIZES = {"batch_size": 2, "group_size": 3}

SOURCE = '''
import grpo_theory as gt


@gt.estimator("shrunken", parameters={"weight": 0.7}, minimum_group_size=2)
def shrunken(batch, advantages):
    """A = Z - weight * mean of the group - (1 - weight) * the norm of the score."""
    for b in range(batch.rewards.shape[0]):
        mean = batch.rewards[b].mean()
        for g in range(batch.rewards.shape[1]):
            rest = (1.0 - batch.parameters[0]) * batch.squared_score_norms[b, g]
            advantages[b, g] = batch.rewards[b, g] - batch.parameters[0] * mean - rest
'''


def exact(kernel, c=None, **sizes):
    c = c or case("linear", "graded")
    return gt.gradient_law(c.problem, c.theta, kernel, **{**SIZES, **sizes})


@pytest.fixture
def shrunken(registry, tmp_path):
    path = tmp_path / "my_kernels.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("my_kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.shrunken


def test_ten_lines_outside_the_package_get_everything(shrunken, seed):
    assert shrunken is gt.estimators()["shrunken"]
    assert shrunken.reads == {"rewards", "squared_score_norms", "parameters"}
    assert shrunken.description.startswith("A = Z - weight")
    for c in (case("linear", "graded"), case("head", "binary", "kl")):
        for kernel in ("shrunken", shrunken, shrunken.with_parameters(weight=0.2)):
            found = exact(kernel, c)
            mean, covariance, mse = batch_law(c, kernel if isinstance(kernel, gt.Estimator) else shrunken, 2, 3)
            np.testing.assert_allclose(found.mean, mean, rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(found.covariance(), covariance, rtol=1e-12, atol=1e-14)
            assert found.mse == pytest.approx(mse, rel=1e-12)
            run = gt.simulate_gradients(c.problem, c.theta, kernel, **SIZES, replications=50_000, rng=seed(6))
            assert abs(run.mse[0] - mse) < 4.9 * run.mse_standard_error[0]
            assert 9.8 * run.mse_standard_error[0] < 0.1 * mse
    with pytest.raises(ValueError, match="group_size must be at least 2 for estimator 'shrunken', got 1"):
        exact("shrunken", group_size=1)


def no_such_field(batch, advantages):
    advantages[:, :] = batch.reward


def returns_a_value(batch, advantages):
    return batch.rewards


def wrong_shape(batch, advantages):
    advantages[:] = batch.rewards[0, 0, 0]


def a_name_that_is_not_there(batch, advantages):
    advantages[:, :] = no_such_function(batch.rewards)  # noqa: F821


def imports_inside(batch, advantages):
    import math

    advantages[:, :] = math.sqrt(2.0)


def a_python_object(batch, advantages):
    advantages[:, :] = dict(rewards=batch.rewards)["rewards"].tolist()  # noqa: C408


BAD = [no_such_field, returns_a_value, wrong_shape, a_name_that_is_not_there, imports_inside, a_python_object]


@pytest.mark.parametrize("function", BAD, ids=lambda function: function.__name__)
def test_a_kernel_that_does_not_compile_names_the_documented_arguments(registry, function):
    gt.estimator("bad")(function)
    message = (
        rf"the kernel '{function.__name__}' does not compile: .*; a kernel is kernel\(batch, advantages\): it reads "
        r"batch\.rewards, batch\.squared_score_norms, batch\.lengths, .* and fills advantages \(B, G\) in place"
    )
    with pytest.raises(TypeError, match=message) as caught:
        exact("bad")
    assert caught.value.__cause__ is None
    c = case()
    with pytest.raises(TypeError, match="does not compile"):
        gt.simulate_gradients(c.problem, c.theta, "bad", **SIZES, replications=10, rng=0)


def of_text(batch, advantages):
    advantages[:, :] = "text"


def writes_on_the_batch(batch, advantages):
    batch.rewards[0, 0] = 1.0


REASONS = {
    no_such_field: r"Unknown attribute '\w+', in `.+`",
    a_name_that_is_not_there: "name '.+' is not defined",
    of_text: r"No implementation .+ for signature: setitem\(.+\), in `advantages\[:, :\] = \"text\"`",
    writes_on_the_batch: r"Cannot modify readonly array .+, in `batch\.rewards\[0, 0\] = 1\.0`",
}


@pytest.mark.parametrize("function", REASONS, ids=lambda function: function.__name__)
def test_the_reason_and_the_line_are_said(registry, function):
    gt.estimator("bad")(function)
    with pytest.raises(TypeError, match=f"does not compile: {REASONS[function]}; a kernel is"):
        gt.gradient_mse(case().problem, case().theta, "bad", **SIZES)


def leaves_the_last(batch, advantages):
    advantages[:, :-1] = batch.rewards[:, :-1]


def divides_by_nothing(batch, advantages):
    advantages[:, :] = batch.rewards / (batch.rewards - batch.rewards)


@pytest.mark.parametrize("function", [leaves_the_last, divides_by_nothing])
def test_advantages_must_be_finite(registry, function):
    gt.estimator("unfinished")(function)
    message = r"the kernel of estimator 'unfinished' must fill finite advantages, got \[.*(nan|inf)\] for a group with rewards \["
    with pytest.raises(ValueError, match=message):
        exact("unfinished")


def first_response_only(batch, advantages):
    advantages[:, :] = 0.0
    advantages[:, 0] = batch.rewards[:, 0]


def first_of_the_best(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        advantages[b] = 0.0
        advantages[b, batch.rewards[b].argmax()] = 1.0


def neighbour(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - batch.rewards[b, g - 1]


def halves(batch, advantages):
    half = batch.rewards.shape[1] // 2
    for b in range(batch.rewards.shape[0]):
        advantages[b, :half] = batch.rewards[b, :half] - batch.rewards[b, half:].mean()
        advantages[b, half:] = batch.rewards[b, half:] - batch.rewards[b, :half].mean()


@pytest.mark.parametrize("rewards", ["binary", "graded"])
@pytest.mark.parametrize("group_size", [3, 4, 5])
@pytest.mark.parametrize("function", [first_response_only, first_of_the_best, neighbour, halves])
def test_kernels_that_look_at_places_are_refused(registry, function, group_size, rewards):
    gt.estimator("placed")(function)
    message = r"estimator 'placed' must give (each response an advantage that does not depend on its position|equal advantages)"
    with pytest.raises(ValueError, match=message):
        exact("placed", case("linear", rewards), group_size=group_size)


def batch_mean(batch, advantages):
    mean = batch.rewards.mean()
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - mean


def batch_deviation(batch, advantages):
    scale = 1.0 / (batch.rewards.std() + 1e-4)
    for b in range(batch.rewards.shape[0]):
        mean = batch.rewards[b].mean()
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = scale * (batch.rewards[b, g] - mean)


def mean_of_values(batch, advantages):
    value = batch.values.mean()
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - value


def last_group(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - batch.rewards[b - 1].mean()


@pytest.mark.parametrize("rewards", ["binary", "graded"])
@pytest.mark.parametrize(
    ("function", "group_size"),
    [(function, size) for function in (batch_mean, mean_of_values, last_group) for size in (1, 2, 3, 4, 8)]
    + [(batch_deviation, size) for size in (2, 3, 4, 8)],
)
def test_kernels_that_couple_groups_unannounced_are_refused(registry, function, group_size, rewards):
    gt.estimator("coupled")(function)
    with pytest.raises(ValueError, match=r"estimator 'coupled' must .* nor on other groups\. .* couples_groups=True"):
        exact("coupled", case("linear", rewards), group_size=group_size)


def half_of_the_largest(batch, advantages):
    half = 0.5 * batch.rewards.max()
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - half


def the_least(batch, advantages):
    least = batch.rewards.min()
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - 0.5 * batch.rewards[b].mean() - least


def the_largest_norm(batch, advantages):
    largest = batch.squared_score_norms.max()
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] / largest


def the_longest(batch, advantages):
    longest = batch.lengths.max()
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] / longest


def the_easiest(batch, advantages):
    highest = batch.values.max()
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - highest


def one_group_is_scaled(batch, advantages):
    """Divide by the spread of the group whose spread is largest; not finite where all are equal in the batch."""
    widest = 0.0
    for b in range(batch.rewards.shape[0]):
        widest = max(widest, batch.rewards[b].std())
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] / max(widest, 0.01)


EXTREMES = [half_of_the_largest, the_least, the_largest_norm, the_longest, the_easiest, one_group_is_scaled]


def drawn(*problem, **sizes):
    return gt.simulate_gradients(*problem, **sizes, replications=8, rng=0, workers=1)


def trained(*problem, **sizes):
    return gt.simulate_training(*problem, gt.Constant(0.1), **sizes, steps=2, replications=2, rng=0, workers=1)


@pytest.mark.parametrize("group_size", [2, 3, 16])
@pytest.mark.parametrize("function", EXTREMES)
@pytest.mark.parametrize("use", [gt.gradient_mse, drawn, trained])
def test_coupling_that_shows_only_at_extremes_is_refused(registry, function, group_size, use):
    """All multisets in one batch have both ends of every field, so that a maximum over the batch looks like a constant."""
    problem = gt.gallery.problem("sequence-shared" if function is the_longest else "tabular")
    with pytest.raises(ValueError, match=r"estimator 'coupled' must .* couples_groups=True"):
        use(problem, problem.theta, gt.estimator("coupled")(function), batch_size=2, group_size=group_size)


def test_a_kernel_that_looks_rewards_up_is_given_none_that_it_does_not_know():
    """A table from 10 to 13, read at the rewards that it is for and in between: what the check makes up stays inside."""
    bandit = gt.Bandit.from_law([10.0, 11.0, 13.0], np.full((1, 2, 3), 1 / 3))
    problem = gt.Problem(bandit, gt.TabularSoftmax(1, 2), theta=[0.3, 0.0])
    seen = gt.gradient_mse(problem, problem.theta, make_estimator("inside", raises_outside), batch_size=1, group_size=2)
    same = gt.gradient_mse(problem, problem.theta, "reinforce", batch_size=1, group_size=2)
    assert seen == same


def raises_outside(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            if not 10.0 <= batch.rewards[b, g] <= 13.0 and batch.rewards[b].max() > 1.0:
                raise ValueError("not a reward")
            advantages[b, g] = batch.rewards[b, g]


def fills_nothing(batch, advantages):
    advantages = batch.rewards  # noqa: F841


def centres_in_place(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        rewards = batch.rewards[b]
        rewards -= rewards.mean()
        advantages[b] = rewards


def draws_rarely(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g]
            if batch.rewards[b, g] == 0.123:
                advantages[b, g] += np.random.normal()  # noqa: NPY002


def draws_by_another(batch, advantages):
    advantages[:, :] = batch.rewards * drawn_by_another()


@numba.njit
def drawn_by_another():
    return 1.0 if np.random.random() < 1.0 else 0.0  # noqa: NPY002


SAID = {
    fills_nothing: (ValueError, r"must fill advantages, and leaves all of them as they are. Write into the array"),
    centres_in_place: (TypeError, r"'centres_in_place' writes on the batch, which is read-only: .*rewards -= .*; a kernel is"),
    draws_rarely: (TypeError, r"'draws_rarely' draws random numbers, by np\.random\.normal; a kernel is"),
    draws_by_another: (TypeError, r"'draws_by_another' draws random numbers, by np\.random\.random; a kernel is"),
}


@pytest.mark.parametrize("use", [gt.gradient_mse, drawn, trained])
@pytest.mark.parametrize("function", SAID, ids=lambda function: function.__name__)
def test_what_is_wrong_with_a_kernel_is_said(function, use):
    problem = gt.gallery.problem("tabular")
    error, message = SAID[function]
    with pytest.raises(error, match=message):
        use(problem, problem.theta, make_estimator("bad", function), **SIZES)
