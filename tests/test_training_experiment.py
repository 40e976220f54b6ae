"""The experiment of a training run: the simulator's own records, one by one and in the laboratory."""

import numpy as np

import grpo_theory as gt


def test_a_block_is_what_the_simulator_records():
    problem, schedule, sizes = (
        gt.gallery.problem("conflict"),
        gt.Harmonic(17.0, 80),
        {"batch_size": 1, "group_size": 4, "steps": 200},
    )
    start = problem.theta + 0.1
    experiment = gt.RecordedTraining("rloo", schedule, **sizes, theta0=start)
    block = experiment.sample(problem, 5, 7)
    expected = next(gt.simulate_records(problem, start, "rloo", schedule, **sizes, replications=7, rng=5))
    one = experiment.take(block, 3)
    for name in ("path", "mean_rewards", "hessian", "noise", "average"):
        np.testing.assert_array_equal(getattr(block, name), getattr(expected, name))
        np.testing.assert_array_equal(getattr(one, name), getattr(expected, name)[3])
    assert one.tail == expected.tail
