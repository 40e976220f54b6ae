"""Policies of rising quality: the head is trained to what was asked for, and the study's errors are those of enumeration."""

import dataclasses

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.data import arithmetic
from grpo_theory.problem import gallery
from simulations.gradient import quality_path
from simulations.gradient.quality_path import trained_heads


@pytest.fixture(scope="module")
def small():
    """The first 40 of the questions."""
    whole = arithmetic()
    few = dataclasses.replace(whole, answers=whole.answers[:40], hidden=whole.hidden[:, :40])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gallery, "arithmetic", lambda: few)
        yield gallery.problem("lm-few-shot")


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
