"""The heat map's cells, estimator by estimator, against what is known of them."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.harness.study import cell_seed, study_of
from simulations.sequence import questions


def answers(name):
    """Return what the study says of one estimator: question -> (estimate, standard error)."""
    study = study_of(questions)
    cell = next(cell for cell in study.cells(True) if cell.settings["estimator"] == name)
    rows = study.compute(cell.settings, np.random.default_rng(cell_seed("questions", cell, 0)), 0)
    return {row["quantity"]: (row["estimate"], row["standard_error"]) for row in rows}


def test_what_a_uniform_group_gets():
    """Without a baseline the reward itself, with a group's mean nothing.

    Shrinking towards the other groups' mean, it is not 0; an oracle has no answer from rewards alone.
    """
    own = ("reinforce", "rloo", "dr_grpo", "grpo", "max_rl", "nemo_rl")
    assert [questions.uniform_advantage(name, 8) for name in own] == [1.0] + [0.0] * 5
    assert 0.0 < questions.uniform_advantage("james_stein", 8) < 1.0
    assert np.isnan(questions.uniform_advantage("oracle", 8))


def test_known_cells():
    """Leave-one-out is unbiased, the own sample changes a factor alone, and the oracle is the unit of efficiency."""
    found = {name: answers(name) for name in ("oracle", "rloo", "dr_grpo", "reinforce")}
    assert found["oracle"]["efficiency"][0] == pytest.approx(1.0, rel=1e-12)
    assert found["dr_grpo"]["efficiency"][0] == pytest.approx(found["rloo"]["efficiency"][0], rel=1e-9)
    assert found["reinforce"]["efficiency"][0] < found["rloo"]["efficiency"][0] < 1.0
    for one in found.values():
        assert one["cosine"][0] == pytest.approx(1.0, abs=1e-12)


def test_simulated_cells_agree_with_exact_ones():
    """What estimators that couple groups are simulated by finds the exact moments of one that does not."""
    problem, sizes = gt.gallery.problem(questions.PROBLEM), {"batch_size": 4, "group_size": 8}
    exact, nothing, known, none = questions.measured(problem, problem.theta, "rloo", None, 0, **sizes)
    assert nothing == none == 0.0
    mean, error, efficiency, spread = questions.measured(problem, problem.theta, "rloo", 0, 1 << 14, **sizes)
    assert np.linalg.norm(mean - exact) < 4.9 * error
    assert abs(efficiency - known) < 4.9 * spread
