"""An optimiser of a user's own."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.compiler import function_value
from grpo_theory.simulate import MOVE

SIZES = {"batch_size": 4, "group_size": 4, "steps": 7, "replications": 3, "rng": 1}


def step_by_sign(theta, gradient, moments, settings, step, count):
    """Theta moves by the step, up or down."""
    for j in range(theta.shape[0]):
        for i in range(theta.shape[1]):
            theta[j, i] += step * np.sign(gradient[j, i])


class BySign:
    """An optimiser that remembers nothing."""

    move = function_value(MOVE)(step_by_sign)
    n_moments = 0
    settings = np.empty(0)


def moved_by(optimiser):
    """Return by how many steps the runs moved."""
    problem = gt.gallery.problem("linear")
    found = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.25), **SIZES, optimiser=optimiser)
    return (found.theta - problem.theta) / 0.25


def test_an_optimiser_without_memory_is_called_too():
    steps = moved_by(BySign())
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-12)
    assert np.abs(steps).max() >= 1.0


def test_a_move_that_is_not_compiled_is_refused():
    class Uncompiled(BySign):
        move = staticmethod(step_by_sign)

    with pytest.raises(TypeError, match=r"the move of Uncompiled must be compiled, got .*: put @function_value\(MOVE\) above it"):
        moved_by(Uncompiled())

    class Allotting(BySign):
        move = gt.allocation_rules()["vip"].fill

    with pytest.raises(TypeError, match=r"must be compiled, got FunctionValue\(fill_printed\) of another signature: put"):
        moved_by(Allotting())


def test_settings_may_be_any_sequence():
    class Listed(BySign):
        settings = ()

    np.testing.assert_array_equal(moved_by(Listed()), moved_by(BySign()))


def test_what_is_no_optimiser_is_told_what_one_has():
    with pytest.raises(TypeError, match=r"or an object of yours with move, n_moments and settings, got 'adam'"):
        moved_by("adam")
    with pytest.raises(TypeError, match=r"got the class BySign\. Write BySign\(\), with its settings in the brackets"):
        moved_by(BySign)

    class Half:
        move = BySign.move
        n_moments = 0

    with pytest.raises(TypeError, match=r"with move, n_moments and settings, got "):
        moved_by(Half())

    class Negative(BySign):
        n_moments = -1

    with pytest.raises(ValueError, match="n_moments must be at least 0, got -1"):
        moved_by(Negative())

    class Worded(BySign):
        settings = ("fast",)

    with pytest.raises((TypeError, ValueError), match="settings must be"):
        moved_by(Worded())


def remember_twice(theta, gradient, moments, settings, step, count):
    """Writes on two moments, and reads a setting."""
    for j in range(theta.shape[0]):
        for i in range(theta.shape[1]):
            moments[1, j, i] += gradient[j, i]
            theta[j, i] += step * settings[0] * moments[1, j, i]


class Twice:
    """An optimiser that remembers two moments."""

    move = function_value(MOVE)(remember_twice)

    def __init__(self, n_moments, settings):
        self.n_moments, self.settings = n_moments, settings


def test_a_move_that_leaves_its_arrays_is_refused_before_it_spoils_memory():
    assert np.isfinite(moved_by(Twice(2, [1.0]))).all()
    for n_moments, settings in ((1, [1.0]), (0, [1.0]), (2, [])):
        with pytest.raises(
            ValueError, match=r"the move of Twice leaves its arrays \(index \d is out of bounds .*raise n_moments"
        ):
            moved_by(Twice(n_moments, settings))
