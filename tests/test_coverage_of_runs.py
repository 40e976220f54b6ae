"""The coverage studies of training runs and of pairs: their truths against the simulator, and their controls."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory import Interval, intervals
from grpo_theory.harness.sides import joined
from grpo_theory.harness.study import cell_seed
from simulations.coverage import coverage_pairs, coverage_runs
from simulations.maximum import curvatures, maximum


def test_the_law_of_a_pair_is_that_of_the_simulator(seed):
    problem = gt.gallery.problem(coverage_pairs.PROBLEM)
    chances, (first, second) = coverage_pairs.pair_law()
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    runs = 40_000
    drawn = [
        gt.simulate_training(
            problem,
            problem.theta,
            estimator,
            gt.Constant(coverage_pairs.STEP),
            batch_size=1,
            group_size=coverage_pairs.GROUP_SIZE,
            steps=1,
            replications=runs,
            rng=seed(21),
        ).objectives[:, 0]
        for estimator in ("rloo", "reinforce")
    ]
    for simulated, exact in ((drawn[0], first), (drawn[1], second), (drawn[0] - drawn[1], first - second)):
        mean = chances @ exact
        deviation = np.sqrt(chances @ (exact - mean) ** 2)
        assert abs(simulated.mean() - mean) < 4.9 * deviation / np.sqrt(runs)
        assert simulated.std() == pytest.approx(deviation, rel=0.05)


def test_a_sequence_is_its_running_intersection():
    rng = np.random.default_rng(4)
    first, second = rng.normal(size=(6, 50)) + 0.2, rng.normal(size=(6, 50))
    data = np.stack([first, second], axis=1)
    whole = intervals.paired_sequence(first, second, 0.95, horizon=10)
    found = coverage_pairs.sequence(data, 0.95, first=10)
    for i in range(6):
        assert found.low[i] == whole.low[i, 9:].max()
        assert found.high[i] == whole.high[i, 9:].min()
    late = coverage_pairs.watched(data, 0.95, first=50)
    fixed = intervals.paired_difference(first, second, 0.95)
    np.testing.assert_allclose((late.low, late.high), (fixed.low, fixed.high), rtol=1e-9)


def test_limits_that_exclude_each_other_leave_nothing():
    found = Interval(np.zeros((1, 2)), np.ones((1, 2)), np.array([[0.0, 2.0]]), np.array([[1.0, 3.0]]), 0.95)
    left = coverage_pairs.intersection(found, 1)
    assert np.isnan(left.low).all()


def test_the_truths_about_a_run_are_its_own():
    """Every target of the panel, recomputed from the path of one run."""
    problem, best, highest = maximum("conflict")
    block = gt.RecordedTraining("rloo", gt.Constant(0.4), 1, 4, 60, best).sample(problem, 7, 3)
    _, directions = curvatures("conflict")

    def value(theta):
        return float(gt.moments(problem, theta).value @ problem.bandit.prompt_weights)

    for run in range(3):
        path = block.path[run]
        expected = {
            "gap_limit": highest - value(path[60]),
            "learned_value": value(path[60]),
            "tail_value": np.mean([value(theta) for theta in path[30:60]]),
        }
        for name, truth in expected.items():
            assert coverage_runs.truth(name, "conflict", block)[run] == pytest.approx(truth, abs=1e-12), name
    assert coverage_runs.truth("best_value", "conflict", block) == highest
    np.testing.assert_allclose(coverage_runs.truth("last_iterate", "conflict", block), directions.T @ best)


def test_narrowed_limits():
    two = coverage_runs.narrower(Interval(np.array(1.0), np.array(1.0), np.array(-1.0), np.array(3.0), 0.95))
    one = coverage_runs.narrower(Interval(np.array(1.0), np.array(1.0), np.array(0.0), np.array(4.0), 0.95))
    assert (two.low, two.high) == (pytest.approx(-0.8), pytest.approx(2.8))
    assert (one.low, one.high) == (0.0, pytest.approx(3.6))


def test_chunks_are_averaged():
    case = next(case for case in coverage_runs.cases(True) if case["part"] == "point") | {"steps": 100, "runs": 128}
    seed = cell_seed("coverage_runs", coverage_runs.trained.cell(case), 0)
    results = [coverage_runs.trained(**case, rng=np.random.default_rng(seed), chunk=chunk) for chunk in (0, 1)]
    assert results[0]["tail_value"]["coverage"][0] != results[1]["tail_value"]["coverage"][0]
    own, narrow = (coverage_runs.coverage(joined(results), 256, which) for which in ("coverage", "narrowed"))
    assert own["CI/tail_value"].estimate == pytest.approx(np.mean([one["tail_value"]["coverage"][0] for one in results]))
    assert own["CI/tail_value"].replications == 256
    assert list(own) == [f"CI/{name}" for name in case["intervals"]]
    assert all(narrow[name].estimate <= one.estimate for name, one in own.items())


def test_the_advised_number_of_seeds_is_that_of_a_large_pilot():
    pilot = coverage_pairs.PairedTraining(100_000).sample(None, np.random.default_rng(0), 1)
    chances, (first, second) = coverage_pairs.pair_law()
    sizes = {"power": coverage_pairs.POWER, "level": coverage_pairs.LEVEL}
    assert intervals.seeds_needed(*pilot[0], chances @ (first - second), **sizes) == coverage_pairs.ADVISED
