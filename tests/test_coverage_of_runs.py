"""The coverage studies of training runs and of pairs: their truths against the simulator, and their controls."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory import intervals
from simulations.coverage import coverage_pairs, coverage_runs
from simulations.maximum import curvatures, maximum


def test_the_law_of_a_pair_is_that_of_the_simulator(seed):
    problem, runs = gt.gallery.problem(coverage_pairs.PROBLEM), 40_000
    chances, exact = coverage_pairs.pair_law()
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    sizes = {"batch_size": 1, "group_size": coverage_pairs.GROUP_SIZE, "steps": 1, "replications": runs, "rng": seed(21)}
    where = (problem, problem.theta)
    drawn = [
        gt.simulate_training(*where, estimator, gt.Constant(coverage_pairs.STEP), **sizes).objectives[:, 0]
        for estimator in ("rloo", "reinforce")
    ]
    for simulated, law in ((drawn[0], exact[0]), (drawn[1], exact[1]), (drawn[0] - drawn[1], exact[0] - exact[1])):
        mean = chances @ law
        deviation = np.sqrt(chances @ (law - mean) ** 2)
        assert abs(simulated.mean() - mean) < 4.9 * deviation / np.sqrt(runs)
        assert simulated.std() == pytest.approx(deviation, rel=0.05)
    # The advised number of seeds is that of a large pilot.
    pilot = coverage_pairs.PairedTraining(100_000).sample(None, np.random.default_rng(0), 1)
    sizes = {"power": coverage_pairs.POWER, "level": coverage_pairs.LEVEL}
    assert intervals.seeds_needed(*pilot[0], chances @ (exact[0] - exact[1]), **sizes) == coverage_pairs.ADVISED


def test_a_sequence_is_its_running_intersection():
    rng = np.random.default_rng(4)
    first, second = rng.normal(size=(6, 50)) + 0.2, rng.normal(size=(6, 50))
    data = np.stack([first, second], axis=1)
    whole = intervals.paired_sequence(first, second, 0.95, horizon=10)
    found = coverage_pairs.sequence(data, 0.95, first=10)
    for i in range(6):
        assert found.low[i] == whole.low[i, 9:].max()
        assert found.high[i] == whole.high[i, 9:].min()


def test_the_truths_about_a_run_are_its_own():
    """Every target of the panel, recomputed from the path of one run."""
    problem, best, highest = maximum("conflict")
    block = gt.RecordedTraining("rloo", gt.Constant(0.4), 1, 4, 60, best).sample(problem, 7, 3)
    values = gt.objective(problem, block.path)
    expected = {"gap_limit": highest - values[:, 60], "learned_value": values[:, 60], "tail_value": values[:, 30:60].mean(axis=1)}
    for name, truth in expected.items():
        np.testing.assert_allclose(coverage_runs.truth(name, "conflict", block), truth, rtol=0, atol=1e-12)
    assert coverage_runs.truth("best_value", "conflict", block) == highest
    np.testing.assert_allclose(coverage_runs.truth("last_iterate", "conflict", block), curvatures("conflict")[1].T @ best)
