"""The experiment of a training run: the simulator's own records, one by one and in the laboratory."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.intervals import last_iterate
from grpo_theory.simulate import simulate_records

STEPS = 200


@pytest.fixture(scope="module")
def conflict():
    problem = gt.gallery.problem("conflict")
    return problem, gt.find_optimum(problem, problem.theta)


def experiment(**changes):
    given = {"estimator": "rloo", "schedule": gt.Harmonic(17.0, 80), "batch_size": 1, "group_size": 4, "steps": STEPS}
    return gt.RecordedTraining(**given | changes)


def test_a_block_is_what_the_simulator_records(conflict):
    problem, best = conflict
    block = experiment(theta0=best).sample(problem, 5, 7)
    where = (problem, best, "rloo", gt.Harmonic(17.0, 80))
    expected = next(simulate_records(*where, batch_size=1, group_size=4, steps=STEPS, replications=7, rng=5))
    one = experiment(theta0=best).take(block, 3)
    for name in ("path", "mean_rewards", "hessian", "noise", "average"):
        np.testing.assert_array_equal(getattr(block, name), getattr(expected, name))
        np.testing.assert_array_equal(getattr(one, name), getattr(expected, name)[3])
    assert one.tail == expected.tail
    np.testing.assert_array_equal(experiment().sample(problem, 5, 1).path[0, 0], problem.theta)


def test_the_laboratory_asks_about_runs(conflict, seed):
    """Coverage near the level from the maximiser, not so for limits narrowed by a third; a replication comes back."""
    problem, best = conflict
    how = {"experiment": experiment(theta0=best), "replications": 1024, "rng": seed(3)}
    run = gt.coverage(last_iterate, problem, best, **how)
    assert run.failures.sum() < 10
    assert run.consistent(1e-4).all()

    def narrow(record, level):
        found = last_iterate(record, level)
        return found.estimate + (found.low - found.estimate) / 1.5, found.estimate + (found.high - found.estimate) / 1.5

    assert not gt.coverage(narrow, problem, best, **how, vectorized=True).consistent(1e-4).any()
    again = run.replay(700)
    np.testing.assert_array_equal(again.interval.low, run.low[700])
