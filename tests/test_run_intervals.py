"""Intervals from one training run: their covariances by brute force, their equivariance, and their coverage."""

from functools import cache

import numpy as np
import pytest
from scipy.stats import chi2, t

import grpo_theory as gt
from grpo_theory import TrainingRecord
from grpo_theory.exact import check_optimum
from grpo_theory.intervals import (
    averaged_iterate,
    batch_means,
    best_value,
    gap_limit,
    gap_weights,
    last_iterate,
    last_iterate_ellipsoid,
    learned_value,
    random_scaling,
    tail_value,
)
from grpo_theory.intervals.run_intervals import LocalModel, batch_boundaries
from grpo_theory.theory import Linearisation, limit_covariance

PLUG_IN = (last_iterate, averaged_iterate)
PATH = (batch_means, random_scaling)
VALUES = (gap_limit, tail_value, learned_value, best_value)

HESSIAN = -np.array([[0.5, 0.1, 0.0], [0.1, 0.3, 0.05], [0.0, 0.05, 0.2]])
NOISE = np.array([[1.0, 0.3, 0.1], [0.3, 0.8, -0.2], [0.1, -0.2, 0.5]])


def exact_model(steps):
    """The local model with the Hessian and the noise above, known."""
    curvatures, directions = np.linalg.eigh(-HESSIAN)
    return LocalModel(steps, curvatures, directions, directions.T @ NOISE @ directions, np.array(True))


def in_coordinates(model, covariance):
    return model.directions @ covariance @ model.directions.T


@pytest.mark.parametrize("schedule", [gt.Constant(0.7), gt.Harmonic(6.0, 4), gt.Power(1.5, 0.6), gt.Constant(3.5)])
def test_covariances_are_those_of_the_linear_recursion(schedule):
    n, start = 30, 12
    model = exact_model(schedule.steps(n))
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
        covariance, kept = model.law_of_mean(count)
        np.testing.assert_allclose(in_coordinates(model, covariance), weights @ noise @ weights.T, atol=1e-11)
        np.testing.assert_allclose(in_coordinates(model, np.diag(kept)), left, atol=1e-11)


def test_limits_are_the_lyapunov_equation_and_the_sandwich():
    n, beta, offset = 40_000, 8.0, 50
    model = exact_model(gt.Harmonic(beta, offset).steps(n))
    linear = Linearisation(model.curvatures, model.directions, np.diag(model.curvatures), model.noise)
    limit, found = limit_covariance(linear, beta), (n + offset) * model.law_of_mean(1)[0]
    np.testing.assert_allclose(found, limit, rtol=0.01, atol=0.01 * np.abs(limit).max())
    slow = exact_model(gt.Power(3.0, 0.6).steps(n))
    sandwich = np.linalg.inv(HESSIAN) @ NOISE @ np.linalg.inv(HESSIAN)
    found = n // 2 * in_coordinates(slow, slow.law_of_mean(n // 2)[0])
    np.testing.assert_allclose(found, sandwich, rtol=0.03, atol=0.03)


@cache
def setting(name):
    """A training problem, its optimum, the maximum, curvatures, directions and the steps of the limit law."""
    problem = gt.gallery.problem(name)
    best = gt.find_optimum(problem, problem.theta)
    curvatures, directions = check_optimum(problem, best)
    highest = float(gt.objective(problem, best))
    beta = 2.0 / curvatures[0]
    schedule = gt.Harmonic(beta, int(20.0 * beta * curvatures[-1]) + 200)
    return problem, best, highest, curvatures, directions, schedule


def simulate(name, runs, steps, rng, schedule=None):
    problem, best, _, _, _, harmonic = setting(name)
    where = (problem, best, "rloo", harmonic if schedule is None else schedule)
    return gt.simulate_records(*where, batch_size=1, group_size=4, steps=steps, replications=runs, rng=rng, workers=2)


def single(record, run):
    """Take one run of a block."""
    return TrainingRecord(record.step_sizes, record.path[run], record.mean_rewards[run], record.hessian[run], tail=record.tail)


@pytest.mark.parametrize("function", PLUG_IN + PATH + VALUES)
def test_many_runs_are_one_by_one(function):
    _, _, _, _, directions, _ = setting("kl-tabular")
    record = next(simulate("kl-tabular", 4, 300, 1))
    options = {"contrasts": directions.T} if function in PLUG_IN + PATH else {}
    many = function(record, 0.9, **options)
    assert function.vectorized
    for run in range(4):
        one = function(single(record, run), 0.9, **options)
        for name in ("estimate", "standard_error", "low", "high"):
            np.testing.assert_allclose(getattr(one, name), getattr(many, name)[run], rtol=1e-9)


@pytest.mark.parametrize("function", PLUG_IN + VALUES)
def test_plug_in_does_not_depend_on_the_orthonormal_coordinates_or_the_origin(function):
    record = next(simulate("kl-linear", 3, 300, 2))
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
    shift = np.array([1.0, -2.0, 0.5])
    hessian = rotation @ record.hessian @ rotation.T
    turned = TrainingRecord(record.step_sizes, (record.path + shift) @ rotation.T, record.mean_rewards, hessian)
    contrasts = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, -1.0]])
    if function in PLUG_IN:
        one, other = function(record, contrasts=contrasts), function(turned, contrasts=contrasts @ rotation.T)
        np.testing.assert_allclose(other.low, one.low + contrasts @ shift, rtol=1e-8)
    else:
        np.testing.assert_allclose(function(turned).high, function(record).high, rtol=1e-8)


def test_batch_means_and_random_scaling_by_hand():
    path = np.random.default_rng(1).normal(size=(41, 1))
    record = TrainingRecord(np.full(40, 0.1), path, np.zeros(40))
    means = path[1:].reshape(4, 10).mean(axis=1)[1:]
    found = batch_means(record, 0.9, batches=3)
    assert found.estimate == pytest.approx(means.mean())
    assert found.width / 2.0 == pytest.approx(t.ppf(0.95, 2) * means.std(ddof=1) / np.sqrt(3.0))
    x = path[1:, 0]
    scale = sum((s * (x[:s].mean() - x.mean())) ** 2 for s in range(1, 41)) / 40**2
    scaled = random_scaling(record, 0.9)
    assert scaled.standard_error == pytest.approx(np.sqrt(scale / 40))
    for level, published in ((0.9, 5.323), (0.95, 6.747), (0.98, 8.613)):  # Abadir and Paruolo (1997), Table 1
        assert random_scaling(record, level).width == pytest.approx(2.0 * published * scaled.standard_error, rel=2e-4)
    # Batches of equal sums of steps; for steps i^-a those of Chen, Lee, Tong and Zhang (2020).
    n, a = 2_000_000, 0.55
    printed = n * (np.arange(1, 6) / 5) ** (1.0 / (1.0 - a))
    np.testing.assert_allclose(batch_boundaries(gt.Power(2.0, a).steps(n), 4), printed, rtol=0.02)
    assert batch_boundaries(np.r_[np.full(95, 0.1), np.full(5, 1e-16)], 3)[-1] == 100


def test_tail_value_by_hand_and_the_shifts_of_its_sisters():
    record = single(next(simulate("conflict", 1, 400, 3)), 0)
    rewards, steps, weights = record.mean_rewards[200:], record.step_sizes[200:], gap_weights(record)
    found, best, learned = (one(record) for one in (tail_value, best_value, learned_value))
    assert found.estimate == pytest.approx(rewards.mean())
    assert found.standard_error == best.standard_error == pytest.approx(rewards.std(ddof=1) / np.sqrt(200.0))
    assert best.estimate - found.estimate == pytest.approx(weights.sum() * steps.mean() / steps[-1])
    assert best.estimate - learned.estimate == pytest.approx(weights.sum())
    assert learned.standard_error == pytest.approx(np.sqrt(found.standard_error**2 + 2.0 * (weights**2).sum()))
    for level in (0.5, 0.999):
        assert gap_limit(record, level).high == pytest.approx(gt.WeightedChiSquare(weights).ppf(level), rel=1e-9)
    # In double precision the standard deviation of many 0.1 is not 0.
    path, rewards = np.random.default_rng(0).normal(size=(2, 41, 2)), np.full((2, 40), 0.1)
    rewards[1, -1] = 0.2
    for function in (tail_value, learned_value):
        many = function(TrainingRecord(np.full(40, 0.1), path, rewards, np.array(2 * [-np.eye(2)])))
        np.testing.assert_array_equal(np.isnan(many.low), [True, False])


RUNS = 4096


@cache
def coverage(name, shift):
    """Hits among 4096 runs of the intervals and of copies of 0.9 the width, by interval and target."""
    problem, best, highest, _, directions, _ = setting(name)
    hits = {}
    for record in simulate(name, RUNS, 600, 21 + shift):
        gap = highest - gt.objective(problem, record.path[:, -1])
        slow = directions[:, :1].T
        found = {
            "last": (last_iterate(record, contrasts=slow), slow @ best),
            "average": (averaged_iterate(record, contrasts=slow), slow @ best),
            "gap": (gap_limit(record), gap),
            "joint": (last_iterate_ellipsoid(record, contrasts=directions.T), directions.T @ best),
            "learned": (learned_value(record), highest - gap),
            "best": (best_value(record), highest),
        }
        for label, (interval, truth) in found.items():
            if label == "gap":
                narrow = truth <= 0.8 * interval.high
            elif label == "joint":
                narrow = interval.squared_distance(truth) <= 0.81 * interval.squared_radius
            else:
                narrow = np.abs(truth - (interval.low + interval.high) / 2.0) <= 0.45 * interval.width
            before = hits.get(label, np.zeros(2, dtype=int))
            hits[label] = before + np.array([interval.covers(truth).sum(), narrow.sum()])
    return hits


@pytest.mark.parametrize("name", ["kl-linear", "kl-tabular"])
@pytest.mark.parametrize("label", ["last", "average", "joint", "gap", "learned", "best"])
def test_coverage_at_the_steps_of_the_limit_law(name, label, request):
    """At 0.9 of the width a normal interval covers 92.2%: 8 standard errors below 95% with 4096 runs."""
    held, narrow = coverage(name, 1_000_003 * request.config.getoption("--vary-seed"))[label]
    error = np.sqrt(RUNS * 0.95 * 0.05)
    assert abs(held - 0.95 * RUNS) < 4.9 * error
    assert narrow - 0.95 * RUNS < -4.9 * error


@pytest.mark.parametrize(("function", "steps"), [(batch_means, 100), (random_scaling, 800)])
def test_coverage_on_independent_iterates(function, steps, seed):
    """Where iterates are independent normal numbers, batch means have exactly Student's law."""
    runs = 2 * RUNS
    path = np.random.default_rng(seed(5)).normal(2.0, 3.0, size=(runs, steps + 1, 1))
    record = TrainingRecord(np.full(steps, 0.1), path, np.zeros((runs, steps)))
    found = function(record, 0.8)
    held = found.covers(2.0).sum()
    narrow = (np.abs(found.estimate - 2.0) <= 0.45 * found.width).sum()
    error = np.sqrt(runs * 0.8 * 0.2)
    assert abs(held - 0.8 * runs) < 4.9 * error
    assert narrow - 0.8 * runs < -4.9 * error


def flat_record(hessian, steps=None, path=None):
    path = np.random.default_rng(0).normal(size=(41, 2)) if path is None else path
    rewards = np.broadcast_to(np.arange(40.0) % 2.0, (*path.shape[:-2], 40))
    return TrainingRecord(np.full(40, 0.1) if steps is None else steps, path, rewards, hessian)


@pytest.mark.parametrize("function", [batch_means, random_scaling])
def test_functionals_that_do_not_move_get_no_limits(function):
    """Gradients are orthogonal to (1, 1), as a softmax's are to shifts of its logits: the sum of the logits moves by rounding."""
    path = 0.1 + np.cumsum(np.random.default_rng(0).normal(size=(41, 1)), axis=0) * [1.0 / 3.0, -1.0 / 3.0]
    record = TrainingRecord(np.full(40, 0.1), path, np.zeros(40))
    assert np.ptp(path.sum(axis=1)) > 0.0
    assert (function(record).width > 0.0).all()
    with pytest.raises(ValueError, match="the iterates do not vary in component 1: they give no standard error"):
        function(record, contrasts=[[1.0, 0.0], [1.0, 1.0]])
    mapped = TrainingRecord(record.step_sizes, path[:, :1] * -3.0 + 7.0, np.zeros(40))
    one, other = function(record, contrasts=[[-3.0, 0.0]]), function(mapped)
    np.testing.assert_allclose((other.low, other.width), (one.low + 7.0, one.width), atol=1e-12)


HALF = np.diag([-0.5, 0.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: last_iterate(flat_record(None)), "hessian must be in the record for a plug-in interval, got None"),
        (lambda: gap_limit(flat_record(np.diag([-1.0, 0.3]))), r"got 0.3 along \[0.0, 1.0\]: the run is too short"),
        (lambda: gap_limit(flat_record(np.zeros((2, 2)))), "the estimate is 0 along all"),
        (lambda: last_iterate(flat_record(HALF)), r"row 1 has a part along \[0.0, 1.0\], where the objective is flat"),
        (
            lambda: last_iterate(flat_record(-0.1 * np.eye(2), gt.Harmonic(4.0).steps(40))),
            r"beta = 4 must be above 1/\(2 lambda\) = 5 with the estimated smallest curvature lambda = 0.1",
        ),
        (lambda: gap_limit(flat_record(-30.0 * np.eye(2))), r"step_sizes must be below 2/lambda = 0.06667 .* got 0.1"),
        (lambda: last_iterate(flat_record(HALF), 1.5), "level must lie strictly between 0 and 1, got 1.5"),
        (lambda: tail_value(flat_record(HALF), 0.0), "level must lie strictly between 0 and 1, got 0.0"),
        (lambda: random_scaling(flat_record(HALF), contrasts=[[1.0]]), r"contrasts must have shape \(J, d\) with d = 2"),
        (lambda: random_scaling(flat_record(HALF), contrasts=[[0.0, 0.0]]), "contrasts must not have a row of zeros"),
        (lambda: batch_means(flat_record(HALF), batches=60), "batches must be few enough for the 40 steps"),
        (lambda: batch_means(flat_record(HALF), batches=1), "batches must be at least 2, got 1"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_ellipsoid_has_the_margins_of_the_intervals():
    record = next(simulate("kl-linear", 3, 300, 2))
    contrasts = np.array([[1.0, 2.0, 0.0], [0.0, -3.0, 1.0]])
    joint, one = last_iterate_ellipsoid(record, contrasts=contrasts), last_iterate(record, contrasts=contrasts)
    np.testing.assert_allclose(joint.estimate, one.estimate, rtol=1e-12)
    np.testing.assert_allclose(np.sqrt(np.einsum("rjj->rj", joint.covariance)), one.standard_error, rtol=1e-12)
    alone = last_iterate_ellipsoid(single(record, 1), contrasts=contrasts)
    np.testing.assert_allclose(alone.covariance, joint.covariance[1], rtol=1e-9)
    np.testing.assert_allclose(joint.squared_radius, chi2(2).ppf(0.95))
    with pytest.raises(ValueError, match="contrasts must be linearly independent, got 2 rows of rank 1"):
        last_iterate_ellipsoid(record, contrasts=[[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]])


def test_among_many_runs_the_hopeless_get_no_limits():
    path = np.random.default_rng(0).normal(size=(4, 41, 2))
    path[1, 30:], path[3] = np.inf, 7.0
    record = flat_record(np.array([-np.eye(2), -np.eye(2), np.diag([-1.0, 0.2]), -np.eye(2)]), path=path)
    for function in (*PLUG_IN, gap_limit, best_value, learned_value):
        lost = np.isnan(function(record).high).reshape(4, -1).all(axis=1)
        np.testing.assert_array_equal(lost, [False, True, True, function is gap_limit])
        assert not function(record).covers(0.0)[1:3].any()
    np.testing.assert_array_equal(gap_weights(record)[3], 0.0)
    # Steps beta/i have a limit law from beta = 1/(2 lambda) on.
    assert np.isfinite(last_iterate(flat_record(-0.2 * np.eye(2), gt.Harmonic(4.0).steps(40))).low).all()
    joint = last_iterate_ellipsoid(record, contrasts=np.eye(2))
    np.testing.assert_array_equal(np.isnan(joint.width), [False, True, True, False])
