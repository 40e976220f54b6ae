"""Policies of rising quality: the head is trained to what was asked for, and the study's errors are those of enumeration."""

import dataclasses
from itertools import product

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.data import arithmetic
from grpo_theory.problem import gallery
from simulations.gradient import best_group, dynamic_sampling, efficiency, quality_path, step_gain
from simulations.gradient.quality_path import trained_heads
from simulations.gradient.step_gain import Head
from simulations.kernels import KERNELS, kernel_at


@pytest.fixture(scope="module")
def small():
    """The first 40 of the questions."""
    whole = arithmetic()
    few = dataclasses.replace(whole, answers=whole.answers[:40], hidden=whole.hidden[:, :40])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gallery, "arithmetic", lambda: few)
        return gallery.problem("lm-few-shot")


def test_heads_have_the_mean_success_that_was_asked_for(small):
    start = float(gt.objective(small, small.theta))
    qualities = (start + 0.05, 0.4, 0.6, 0.85)
    heads = trained_heads(small, qualities)
    np.testing.assert_allclose([float(gt.objective(small, theta)) for theta in heads], qualities, atol=1e-12)
    assert np.array_equal(trained_heads(small, [start / 2.0])[0], small.theta)


def test_the_first_step_goes_up_the_exact_gradient(small):
    """In whitened features: the step times the whitening's inverse is a multiple of the gradient."""
    hidden = small.policy.logit_map.hidden
    start = float(gt.objective(small, small.theta))
    (theta,) = trained_heads(small, [start + 1e-4])
    step = (theta - small.theta).reshape(10, -1) @ (hidden.T @ hidden / len(hidden) + 0.01 * np.eye(hidden.shape[1]))
    gradient = gt.moments(small, small.theta).gradient.reshape(10, -1)
    cosine = (step * gradient).sum() / np.linalg.norm(step) / np.linalg.norm(gradient)
    assert cosine == pytest.approx(1.0, abs=1e-9)


def test_errors_are_those_of_enumeration(small):
    (theta,) = trained_heads(small, [0.6])
    errors = quality_path.errors(gt.moments(small, theta), 8)
    for name in ("reinforce", "oracle", "rloo", "optimal"):
        law = gt.gradient_law(small, theta, name, batch_size=1, group_size=8)
        assert errors[name] == pytest.approx(law.prompt_mse, rel=1e-9), name
    pair = gt.gradient_law(small, theta, "rloo", batch_size=1, group_size=2)
    assert errors[quality_path.PAIRS] == pytest.approx(pair.prompt_mse / 4.0, rel=1e-9)
    assert errors[quality_path.WRONG_SIGN] > errors["reinforce"]


@pytest.mark.parametrize(("name", "best"), [("lm-few-shot", [3, 5]), ("lm-instruct", [3, 8])])
def test_divided_advantages_want_larger_groups(name, best):
    """The best group sizes that an audit with other code found, without division and with it."""
    problem, sizes = gt.gallery.problem(name), range(2, 13)
    found = [efficiency.measures(problem, one, sizes)["efficiency"] for one in ("rloo", "grpo")]
    assert [sizes[np.argmax(one)] for one in found] == best


@pytest.mark.parametrize("name", ["rloo", "grpo", "max_rl"])
def test_where_prompts_are_whole_it_is_the_efficiency_of_that_batch(name):
    problem = gt.gallery.problem("mixed")
    own = efficiency.measures(problem, name, [4, 64])
    for i, size in enumerate((4, 64)):
        sizes = {"batch_size": efficiency.RESPONSES // size, "group_size": size}
        law = gt.gradient_law(problem, problem.theta, name, **sizes)
        assert own["efficiency"][i] == pytest.approx(gt.efficiency(problem, problem.theta, name, **sizes), rel=1e-12)
        assert own["error"][i] == pytest.approx(law.mse / (law.true_gradient @ law.true_gradient), rel=1e-10)


@pytest.mark.parametrize(("name", "group_size"), [("two-arms", 2), ("two-arms", 4), ("mixed", 2)])
def test_predictions_by_enumeration(name, group_size):
    """By mean, mean square and probability of mixed groups' contributions along the plain update, prompt by prompt."""
    problem = gt.gallery.problem(name)
    point, weights = problem.at(problem.theta), problem.bandit.prompt_weights
    mean = gt.gradient_mean(problem, problem.theta, "rloo", batch_size=1, group_size=group_size)
    slopes = point.logit_gradients @ problem.policy.logits(mean / (mean @ mean))[:, :, None]
    means, squares, mixed = np.zeros((3, len(weights)))
    for m, law in enumerate(point.outcome_probabilities):
        for outcomes in map(list, product(range(law.size), repeat=group_size)):
            z, w, chance = point.rewards[m, outcomes], slopes[m, point.outcome_responses[outcomes], 0], law[outcomes].prod()
            if np.ptp(z) > 0.0:
                added = np.mean((z - (z.sum() - z) / (group_size - 1)) * w)
                means[m] += chance * added
                squares[m] += chance * added**2
                mixed[m] += chance
    predicted, _ = dynamic_sampling.predict(name, group_size, batch_size=4)
    predicted = {one.partition("/")[2]: value for one, value in predicted.items()}
    share = weights @ mixed
    assert predicted["redrawn"] == pytest.approx(weights @ means / share, rel=1e-12)
    assert predicted["noise"] == pytest.approx(weights @ squares / share, rel=1e-12)
    assert predicted["rollouts"] == pytest.approx(1.0 / share, rel=1e-12)
    assert predicted["same prompt"] == pytest.approx(weights @ (means / mixed), rel=1e-12)


PROBLEM = gt.gallery.problem("lm-few-shot")


HEAD = Head(PROBLEM)


def test_a_step_along_the_gradient_gains_what_the_objective_says():
    gradient = gt.moments(PROBLEM, PROBLEM.theta).gradient
    direction = PROBLEM.policy.logits(gradient)
    np.testing.assert_allclose(HEAD.exact_direction(), direction, atol=1e-10 * np.abs(direction).max())
    steps = np.array([0.1, 1.0, 5.0]) / np.abs(direction).max()
    reached = [gt.objective(PROBLEM, PROBLEM.theta + step * gradient) for step in steps]
    expected = np.array(reached) - gt.objective(PROBLEM, PROBLEM.theta)
    np.testing.assert_allclose(HEAD.gains(direction[None], steps)[0], expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("name", step_gain.ESTIMATORS)
def test_estimates_have_the_exact_mean_gain_to_first_order_and_mixed_up_groups_none(name):
    """g . ghat over 600 draws, |z| < 4.9; with the advantages of another group it is told from that by as much."""
    gradient = gt.moments(PROBLEM, PROBLEM.theta).gradient
    mean = gt.gradient_mean(PROBLEM, PROBLEM.theta, name, batch_size=128, group_size=8)
    pull = HEAD.probabilities * (HEAD.success - (HEAD.probabilities * HEAD.success).sum(axis=1, keepdims=True)) / len(HEAD.logits)
    rng = np.random.default_rng(3)
    for shift in (0, 1):
        gains = np.concatenate([(pull * some).sum(axis=(1, 2)) for some in HEAD.estimates(name, 8, rng, 600, shift)])
        z = (gains.mean() - gradient @ mean) / (gains.std(ddof=1) / np.sqrt(600))
        assert (abs(z) < 4.9) != bool(shift)


@pytest.mark.parametrize("ratio", [0.3, 1.9, 2.1, 5.8, 11.9, 12.1, 300.0])
def test_a_laws_whole_minimiser_is_the_least_over_all_group_sizes(ratio):
    sizes = np.arange(2, 60)
    found = best_group.minimisers(1.0, ratio, 4.0 * ratio)
    assert found["corrected"] == sizes[np.argmin(sizes + ratio / (sizes - 1))]
    assert found["printed"] == sizes[np.argmin(sizes + ratio / sizes)] == max(2, found["corrected"] - 1)
    assert found["remainder"] == sizes[np.argmin(sizes + 4.0 * ratio / sizes)]


REWARDS, VALUE, BEST, T = np.array([[1.0, 0.0, 1.0, 0.5]]), 0.4, 0.7, 0.8
OTHERS = (REWARDS.sum() - REWARDS) / 3.0
ADVANTAGES = {
    "scaled_value": REWARDS - T * VALUE,
    "scaled_optimal": REWARDS - T * BEST,
    "shifted_optimal": REWARDS - BEST - T,
    "scaled_mean": REWARDS - T * OTHERS,
    "turned_mean": T * (OTHERS - REWARDS),
    "constant_baseline": REWARDS - T,
}


@pytest.mark.parametrize("name", KERNELS)
def test_advantages_are_as_described(name):
    advantages, unread, one = np.empty((1, 4)), np.ones((1, 4)), np.ones(1)
    parameters = kernel_at(name, T).advantage.parameter_array
    batch = gt.Batch(REWARDS, unread, unread.astype(np.int64), unread, VALUE * one, one, BEST * one, parameters)
    KERNELS[name](batch, advantages)
    np.testing.assert_allclose(advantages, ADVANTAGES[name], rtol=1e-14)
