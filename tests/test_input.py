"""What a user may get wrong, answered by name; results as frames; runs compared with their limit law."""

import numpy as np
import pytest

import grpo_theory as gt

LINEAR = gt.gallery.problem("linear")
SIZES = {"batch_size": 2, "group_size": 3}
ROLLOUTS = gt.Rollouts([[1.0, 0.0], [0.0, 1.0]], np.arange(8.0).reshape(2, 2, 2))


def test_what_is_wrong_is_said_by_name():
    """Each call, and what its message must hold."""
    refused = [
        (lambda: gt.gradient_mse("linear", LINEAR.theta, "rloo", **SIZES), "problem must be a Problem.*gallery.*'linear'"),
        (lambda: gt.objective(None, LINEAR.theta), "problem must be a Problem, .*, got None"),
        (lambda: gt.intervals.gradient_between(np.ones((3, 2))), "rollouts must be Groups, as gt\\.Rollouts.*shape \\(3, 2\\)"),
        (lambda: gt.intervals.gap_limit(ROLLOUTS), "record must be a TrainingRecord, .*, got an object of type Rollouts"),
        (lambda: gt.theory.break_even_group_size(LINEAR), "moments must be Moments, as gt\\.moments\\(problem, theta\\)"),
        (lambda: gt.estimation.find("GRPO"), "^estimator must be one of \\d+ names, got 'GRPO'; did you mean 'grpo'\\?$"),
        (lambda: gt.estimation.find("Dr-GRPO"), "did you mean 'dr_grpo'\\?"),
        (lambda: gt.gallery.problem("Linear"), "^name must be one of \\d+ names, got 'Linear'; did you mean 'linear'\\?$"),
        (lambda: gt.gallery.names("Training"), "tags must be one of gradient, .* did you mean 'training'\\?"),
        (lambda: gt.Bandit.from_law([0.0, 1e200], [[[0.5, 0.5]]]), "values must lie in \\[-1e\\+60, 1e\\+60\\], got 1e\\+200"),
        (lambda: gt.WeightedChiSquare([1.0]).rvs(rng=-1), "rng must be a non-negative int, .*, got -1"),
        (lambda: gt.worst_case(lambda x: (x[0], 1.0), [(0, 1)], rng=-1), "rng must be a non-negative int"),
        (lambda: gt.Pilot(2, 2).sample(LINEAR, -1, 1), "rng must be a non-negative int"),
        (lambda: gt.Power(1, "1"), "exponent must be a number, got '1'"),
        (lambda: gt.Power("1", 1), "step_scale must be a number above 0, got '1'"),
        (lambda: gt.Harmonic("1"), "step_scale must be a number above 0, got '1'"),
        (lambda: gt.Harmonic(1.0, "1"), "offset must be an integer of at least 0, got '1'"),
        (lambda: gt.Constant("1"), "step must be a number above 0, got '1'"),
        (lambda: gt.Constant(0.1).steps("4"), "n must be an integer of at least 0, got '4'"),
        (lambda: gt.Constant(10**400), "step must be finite and above 0"),
    ]
    for make, message in refused:
        with pytest.raises((TypeError, ValueError), match=message):
            make()


def test_rewards_as_large_as_may_be_have_a_finite_error_that_scales():
    one, large = (gt.Bandit.from_law([0.0, size], [[[0.5, 0.5], [0.2, 0.8]]]) for size in (1.0, 1e60))
    errors = [
        gt.gradient_mse(gt.Problem(bandit, gt.TabularSoftmax(1, 2)), [0.0, 0.3], "rloo", **SIZES) for bandit in (one, large)
    ]
    assert errors[1] == pytest.approx(1e120 * errors[0], rel=1e-12)


def test_probabilities_of_float32_are_divided_by_their_sum():
    rng = np.random.default_rng(3)
    law = rng.dirichlet(np.ones(7), size=(5, 4)).astype(np.float32)
    exact = law.astype(np.float64)
    assert np.abs(exact.sum(axis=-1) - 1.0).max() > 1e-9
    bandit = gt.Bandit.from_law(np.arange(7.0), law, np.full(5, 0.2, dtype=np.float32))
    np.testing.assert_allclose(bandit.probabilities.sum(axis=-1), 1.0, rtol=1e-15)
    np.testing.assert_allclose(bandit.probabilities, exact, rtol=1e-6)
    assert gt.KL(0.1, law[:, 0]).reference.sum() == pytest.approx(5.0, rel=1e-15)
    with pytest.raises(ValueError, match="probabilities must sum to 1 along the last axis"):
        gt.Bandit.from_law(np.arange(7.0), exact)
    with pytest.raises(ValueError, match="probabilities must sum to 1 along the last axis"):
        gt.Bandit.from_law([0.0, 1.0], np.array([[[0.5, 0.5001]]], dtype=np.float32))
