"""Intervals from one training run: their covariances by brute force, their equivariance, and their coverage."""

from functools import cache

import numpy as np
import pytest
from pilots import narrowed
from scipy.stats import t

import grpo_theory as gt
from grpo_theory import TrainingRecord, intervals
from grpo_theory.intervals.run_intervals import batch_boundaries, law_of_mean
from simulations.maximum import curvatures, maximum

PLUG_IN = (intervals.last_iterate, intervals.averaged_iterate)
PATH = (intervals.batch_means, intervals.random_scaling)
VALUES = (intervals.gap_limit, intervals.tail_value, intervals.learned_value, intervals.best_value)

HESSIAN = -np.array([[0.5, 0.1, 0.0], [0.1, 0.3, 0.05], [0.0, 0.05, 0.2]])
NOISE = np.array([[1.0, 0.3, 0.1], [0.3, 0.8, -0.2], [0.1, -0.2, 0.5]])


@pytest.mark.parametrize("schedule", [gt.Constant(0.7), gt.Harmonic(6.0, 4), gt.PowerLaw(1.5, 0.6), gt.Constant(3.5)])
def test_covariances_are_those_of_the_linear_recursion(schedule):
    """With the Hessian and the noise above, known."""
    (n, start), (bent, q) = (30, 12), np.linalg.eigh(-HESSIAN)
    last, average = np.zeros((3, 3 * n)), np.zeros((3, 3 * n))
    memory, remembered = np.eye(3), np.zeros((3, 3))
    for i, eta in enumerate(schedule.steps(n)):
        last = (np.eye(3) + eta * HESSIAN) @ last
        last[:, 3 * i : 3 * i + 3] = eta * np.eye(3)
        memory = (np.eye(3) + eta * HESSIAN) @ memory
        average += last / (n - start) * (i >= start)
        remembered += memory / (n - start) * (i >= start)
    noise = np.kron(np.eye(n), NOISE)
    for count, weights, left in ((1, last, memory), (n - start, average, remembered)):
        covariance, kept = law_of_mean(schedule.steps(n), bent, q.T @ NOISE @ q, count)
        np.testing.assert_allclose(q @ covariance @ q.T, weights @ noise @ weights.T, atol=1e-11)
        np.testing.assert_allclose(q * kept @ q.T, left, atol=1e-11)


@cache
def setting(name):
    """A training problem, its optimum, the maximum, directions and the steps of the limit law."""
    bent, directions = curvatures(name)
    beta = 2.0 / bent[0]
    return *maximum(name), directions, gt.Harmonic(beta, int(20.0 * beta * bent[-1]) + 200)


def simulate(name, runs, steps, rng, schedule=None):
    problem, best, _, _, harmonic = setting(name)
    where = (problem, best, "rloo", harmonic if schedule is None else schedule)
    return gt.simulate_records(*where, batch_size=1, group_size=4, steps=steps, replications=runs, rng=rng, workers=2)


@pytest.mark.parametrize("function", PLUG_IN + PATH + VALUES)
def test_many_runs_are_one_by_one(function):
    record = next(simulate("kl-tabular", 4, 300, 1))
    options = {"contrasts": setting("kl-tabular")[3].T} if function in PLUG_IN + PATH else {}
    many, experiment = function(record, 0.9, **options), gt.RecordedTraining("rloo", gt.Constant(0.1), 1, 4, 300)
    for run in range(4):
        one = function(experiment.take(record, run), 0.9, **options)
        for name in ("estimate", "standard_error", "low", "high"):
            np.testing.assert_allclose(getattr(one, name), getattr(many, name)[run], rtol=1e-9)


def test_batch_means_and_random_scaling_by_hand():
    path = np.random.default_rng(1).normal(size=(41, 1))
    record = TrainingRecord(np.full(40, 0.1), path, np.zeros(40))
    means = path[1:].reshape(4, 10).mean(axis=1)[1:]
    found = intervals.batch_means(record, 0.9, batches=3)
    assert found.estimate == pytest.approx(means.mean())
    assert found.width / 2.0 == pytest.approx(t.ppf(0.95, 2) * means.std(ddof=1) / np.sqrt(3.0))
    x = path[1:, 0]
    scale = sum((s * (x[:s].mean() - x.mean())) ** 2 for s in range(1, 41)) / 40**2
    scaled = intervals.random_scaling(record, 0.9)
    assert scaled.standard_error == pytest.approx(np.sqrt(scale / 40))
    for level, published in ((0.9, 5.323), (0.95, 6.747), (0.98, 8.613)):  # Abadir and Paruolo (1997), Table 1
        assert intervals.random_scaling(record, level).width == pytest.approx(2.0 * published * scaled.standard_error, rel=2e-4)
    # Batches of equal sums of steps; for steps i^-a those of Chen, Lee, Tong and Zhang (2020).
    n, a = 2_000_000, 0.55
    printed = n * (np.arange(1, 6) / 5) ** (1.0 / (1.0 - a))
    np.testing.assert_allclose(batch_boundaries(gt.PowerLaw(2.0, a).steps(n), 4), printed, rtol=0.02)
    assert batch_boundaries(np.r_[np.full(95, 0.1), np.full(5, 1e-16)], 3)[-1] == 100


def test_the_quantile_of_random_scaling_is_found_once(monkeypatch):
    found = intervals.random_scaling_quantile(0.9)
    monkeypatch.setattr("grpo_theory.intervals.run_intervals.random_scaling_tail", None)
    assert intervals.random_scaling_quantile(0.9) == found


def test_tail_value_by_hand_and_the_shifts_of_its_sisters():
    record = next(simulate("conflict", 1, 400, 3))
    rewards, steps, weights = record.mean_rewards[0, 200:], record.step_sizes[200:], intervals.gap_weights(record)[0]
    found, best, learned = (one(record) for one in (intervals.tail_value, intervals.best_value, intervals.learned_value))
    assert found.estimate == pytest.approx(rewards.mean())
    assert found.standard_error == best.standard_error == pytest.approx(rewards.std(ddof=1) / np.sqrt(200.0))
    assert best.estimate - found.estimate == pytest.approx(weights.sum() * steps.mean() / steps[-1])
    assert best.estimate - learned.estimate == pytest.approx(weights.sum())
    assert learned.standard_error == pytest.approx(np.sqrt(found.standard_error**2 + 2.0 * (weights**2).sum()))
    for level in (0.5, 0.999):
        assert intervals.gap_limit(record, level).high == pytest.approx(gt.WeightedChiSquare(weights).ppf(level), rel=1e-9)


RUNS = 4096


@cache
def coverage(name, shift):
    """Hits among 4096 runs of the intervals and of copies of 0.9 the width, by interval and target."""
    problem, best, highest, directions, _ = setting(name)
    hits, slow = {}, directions[:, :1].T
    for record in simulate(name, RUNS, 600, 21 + shift):
        gap = highest - gt.objective(problem, record.path[:, -1])
        bound = intervals.gap_limit(record)
        found = {"gap": (bound.covers(gap), gap <= 0.8 * bound.high)}
        for label, interval, truth in (
            ("last", intervals.last_iterate(record, contrasts=slow), slow @ best),
            ("average", intervals.averaged_iterate(record, contrasts=slow), slow @ best),
            ("learned", intervals.learned_value(record), highest - gap),
            ("best", intervals.best_value(record), highest),
        ):
            found[label] = interval.covers(truth), narrowed(interval, truth)
        for label, both in found.items():
            hits[label] = hits.get(label, np.zeros(2, dtype=int)) + [one.sum() for one in both]
    return hits


@pytest.mark.parametrize("name", ["kl-linear", "kl-tabular"])
@pytest.mark.parametrize("label", ["last", "average", "gap", "learned", "best"])
def test_coverage_at_the_steps_of_the_limit_law(name, label, request):
    """At 0.9 of the width a normal interval covers 92.2%: 8 standard errors below 95% with 4096 runs."""
    held, narrow = coverage(name, 1_000_003 * request.config.getoption("--vary-seed"))[label]
    error = np.sqrt(RUNS * 0.95 * 0.05)
    assert abs(held - 0.95 * RUNS) < 4.9 * error
    assert narrow - 0.95 * RUNS < -4.9 * error


@pytest.mark.parametrize(("function", "steps"), [(intervals.batch_means, 100), (intervals.random_scaling, 800)])
def test_coverage_on_independent_iterates(function, steps, seed):
    """Where iterates are independent normal numbers, batch means have exactly Student's law."""
    runs = 2 * RUNS
    path = np.random.default_rng(seed(5)).normal(2.0, 3.0, size=(runs, steps + 1, 1))
    found = function(TrainingRecord(np.full(steps, 0.1), path, np.zeros((runs, steps))), 0.8)
    error = np.sqrt(runs * 0.8 * 0.2)
    assert abs(found.covers(2.0).sum() - 0.8 * runs) < 4.9 * error
    assert narrowed(found, 2.0).sum() - 0.8 * runs < -4.9 * error


def flat(hessian, steps=None, path=None):
    path = np.random.default_rng(0).normal(size=(41, 2)) if path is None else path
    rewards = np.broadcast_to(np.arange(40.0) % 2.0, (*path.shape[:-2], 40))
    return TrainingRecord(np.full(40, 0.1) if steps is None else steps, path, rewards, hessian)


HALF = np.diag([-0.5, 0.0])


def test_bad_input(check_refused):
    check_refused(
        (lambda: intervals.random_scaling(flat(HALF, path=np.zeros((41, 2)))), "the iterates do not vary in component 0, 1"),
        (lambda: intervals.last_iterate(flat(None)), "hessian must be in the record"),
        (lambda: intervals.gap_limit(flat(np.diag([-1.0, 0.3]))), r"got 0.3 along \[0.0, 1.0\]: the run is too short"),
        (lambda: intervals.last_iterate(flat(HALF)), r"row 1 has a part along \[0.0, 1.0\], where the objective is flat"),
        (lambda: intervals.last_iterate(flat(-0.1 * np.eye(2), gt.Harmonic(4.0).steps(40))), r"must be above 1/\(2 lambda\) = 5"),
        (lambda: intervals.gap_limit(flat(-30.0 * np.eye(2))), r"step_sizes must be below 2/lambda = 0.06667 .* got 0.1"),
        (lambda: intervals.batch_means(flat(HALF), batches=60), "batches must be few enough for the 40 steps"),
    )


def test_among_many_runs_the_hopeless_get_no_limits():
    path = np.random.default_rng(0).normal(size=(4, 41, 2))
    path[1, 30:], path[3] = np.inf, 7.0
    record = flat(np.array([-np.eye(2), -np.eye(2), np.diag([-1.0, 0.2]), -np.eye(2)]), path=path)
    for function in (*PLUG_IN, intervals.gap_limit, intervals.best_value, intervals.learned_value):
        lost = np.isnan(function(record).high).reshape(4, -1).all(axis=1)
        np.testing.assert_array_equal(lost, [False, True, True, function is intervals.gap_limit])
    # Steps beta/i have a limit law from beta = 1/(2 lambda) on.
    assert np.isfinite(intervals.last_iterate(flat(-0.2 * np.eye(2), gt.Harmonic(4.0).steps(40))).low).all()
