"""What a user may get wrong, answered by name; results as frames; runs compared with their limit law."""

import warnings

import numpy as np
import pytest

import grpo_theory as gt

LINEAR = gt.gallery.problem("linear")
SIZES = {"batch_size": 2, "group_size": 3}
ROLLOUTS = gt.Rollouts([[1.0, 0.0], [0.0, 1.0]], np.arange(8.0).reshape(2, 2, 2))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: gt.gradient_mse("linear", LINEAR.theta, "rloo", **SIZES),
            TypeError,
            r"problem must be a Problem.*gallery.*'linear'",
        ),
        (lambda: gt.objective(None, LINEAR.theta), TypeError, "problem must be a Problem, .*, got None"),
        (
            lambda: gt.intervals.gradient_between(np.ones((3, 2))),
            TypeError,
            r"rollouts must be Groups, as gt\.Rollouts.*shape \(3, 2\)",
        ),
        (
            lambda: gt.intervals.gap_limit(ROLLOUTS),
            TypeError,
            "record must be a TrainingRecord, .*, got an object of type Rollouts",
        ),
        (
            lambda: gt.theory.break_even_group_size(LINEAR),
            TypeError,
            r"moments must be Moments, as gt\.moments\(problem, theta\)",
        ),
        (
            lambda: gt.estimation.find("GRPO"),
            ValueError,
            r"^estimator must be one of \d+ names, got 'GRPO'; did you mean 'grpo'\?$",
        ),
        (lambda: gt.estimation.find("Dr-GRPO"), ValueError, r"did you mean 'dr_grpo'\?"),
        (
            lambda: gt.gallery.problem("Linear"),
            ValueError,
            r"^name must be one of \d+ names, got 'Linear'; did you mean 'linear'\?$",
        ),
        (lambda: gt.gallery.names("Training"), ValueError, r"tags must be one of gradient, .* did you mean 'training'\?"),
        (
            lambda: gt.Bandit.from_law([0.0, 1e200], [[[0.5, 0.5]]]),
            ValueError,
            r"values must lie in \[-1e\+60, 1e\+60\], got 1e\+200",
        ),
        (lambda: gt.WeightedChiSquare([1.0]).rvs(rng=-1), TypeError, "rng must be a non-negative int, .*, got -1"),
        (lambda: gt.worst_case(lambda x: (x[0], 1.0), [(0, 1)], rng=-1), TypeError, "rng must be a non-negative int"),
        (lambda: gt.Pilot(2, 2).sample(LINEAR, -1, 1), TypeError, "rng must be a non-negative int"),
        (lambda: gt.Power(1, "1"), TypeError, "exponent must be a number, got '1'"),
        (lambda: gt.Power("1", 1), TypeError, "step_scale must be a number above 0, got '1'"),
        (lambda: gt.Harmonic("1"), TypeError, "step_scale must be a number above 0, got '1'"),
        (lambda: gt.Harmonic(1.0, "1"), TypeError, "offset must be an integer of at least 0, got '1'"),
        (lambda: gt.Constant("1"), TypeError, "step must be a number above 0, got '1'"),
        (lambda: gt.Constant(0.1).steps("4"), TypeError, "n must be an integer of at least 0, got '4'"),
        (lambda: gt.Constant(10**400), ValueError, "step must be finite and above 0"),
    ],
)
def test_what_is_wrong_is_said_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_step_too_large_for_the_stability_check_is_called_unstable():
    problem = gt.gallery.problem("kl-linear")
    largest = -2.0 / np.linalg.eigvalsh(gt.hessian(problem, problem.theta))[0]
    for step in (1e3, 1.7e308):
        message = gt.exact.derivatives.stability_message(problem, problem.theta, np.full(3, step))
        assert message.endswith(f"The largest stable step there is {largest:.4g}")
    assert np.isfinite(gt.exact.spectral_radius(problem, problem.theta, 1.7e300))


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


def trained(steps=400, replications=400, offset=20, seed=1):
    """A problem, its maximiser, the schedule and runs near the maximiser."""
    problem = gt.gallery.problem("kl-linear")
    best = gt.find_optimum(problem, problem.theta)
    least = np.linalg.eigvalsh(-gt.hessian(problem, best))[0]
    schedule = gt.Harmonic(2.0 / least, offset * 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gt.exact.StabilityWarning)
        runs = gt.simulate_training(
            problem, best, "rloo", schedule, batch_size=8, group_size=4, steps=steps, replications=replications, rng=seed
        )
    law = gt.limit_law(problem, best, "rloo", batch_size=8, group_size=4, step_scale=2.0 / least)
    return law, schedule, gt.objective(problem, best) - runs.objectives[:, -1], runs


def test_runs_are_compared_with_their_law_in_one_call():
    law, schedule, gaps, _ = trained(steps=2000)
    found = law.compare_gaps(gaps, schedule, 2000)
    scaled = np.sort(2200.0 * gaps)
    shares = np.arange(401) / 400.0
    by_hand = max((shares[1:] - law.cdf(scaled)).max(), (law.cdf(scaled) - shares[:-1]).max())
    assert found.estimate == by_hand
    half = np.sqrt(np.log(2.0 / 0.05) / 800.0)
    assert (found.low, found.high) == pytest.approx((max(0.0, by_hand - half), by_hand + half), rel=1e-14)
    assert (found.level, found.replications) == (0.95, 400)
    # The control: without the offset, or with twice the law, the same runs are far away.
    assert law.compare(2.0 * scaled).low > 0.0
    assert law.compare(2000.0 * gaps).estimate != found.estimate
    with pytest.raises(ValueError, match="schedule must have the law's step_scale"):
        law.compare_gaps(gaps, gt.Harmonic(1.0), 2000)
    with pytest.raises(ValueError, match=r"got 0.1: gt.Constant\(0.1\) has steps of one size"):
        gt.schedule.step_sizes(0.1, 3)
    for schedule_by_hand in (lambda n: np.full(n, 0.1), gt.Constant, np.linspace):
        with pytest.raises(TypeError, match=r"an object with a method steps\(n\), or an array of 3 steps, got .*range\(1, 4\)\]"):
            gt.schedule.step_sizes(schedule_by_hand, 3)
    np.testing.assert_allclose(gt.schedule.step_sizes([0.5 / i for i in range(1, 4)], 3), gt.Harmonic(0.5).steps(3))
    with pytest.raises(TypeError, match="schedule must be Harmonic"):
        law.compare_gaps(gaps, gt.Constant(1.0), 2000)
    with pytest.raises(ValueError, match="gaps must be finite, got nan at index"):
        law.compare_gaps([0.1, np.nan], schedule, 2000)
    with pytest.raises(ValueError, match="weights must be those of one law"):
        gt.WeightedChiSquare([[1.0], [2.0]]).compare([0.1])


def test_the_limits_of_a_distance_hold_the_true_one():
    """Samples of one exponential law against another: the true distance of their distribution functions is known."""
    law = gt.WeightedChiSquare([0.5, 0.5])  # exponential with mean 1
    true = 0.5**1 - 0.5**2  # sup |e^-x - e^-2x|
    rng = np.random.default_rng(2)
    found = [law.compare(rng.exponential(0.5, size=300)) for _ in range(200)]
    assert np.mean([one.low <= true <= one.high for one in found]) >= 0.95
    assert all(one.low > 0.0 for one in found)


def test_results_as_frames():
    law, _, _, runs = trained(steps=8, replications=5)
    frame = runs.to_frame()
    assert len(frame) == 5
    np.testing.assert_array_equal(frame["objective"], runs.objectives[:, 0])
    assert list(frame["run"]) == [0, 1, 2, 3, 4]
    assert set(frame["updates"]) == {8}
    quantiles = law.to_frame(p=[0.1, 0.9])
    np.testing.assert_array_equal(quantiles["quantile"], law.ppf([0.1, 0.9]))
    found = gt.simulate_gradients(
        LINEAR, LINEAR.theta, ["rloo", "grpo"], **SIZES, replications=8, rng=1, directions=np.eye(LINEAR.policy.dimension)[:1]
    )
    frame = found.to_frame().set_index("estimator")
    assert frame.loc["grpo", "mse"] == found.mse[1]
    assert frame.loc["rloo", "along_0_standard_error"] == found.along_standard_error[0, 0]
    exact = gt.gradient_law(LINEAR, LINEAR.theta, "rloo", **SIZES)
    assert exact.to_frame()["weight"] @ exact.to_frame()["mse"] == pytest.approx(exact.prompt_mse, rel=1e-14)
    sizes = gt.group_size_law(LINEAR, LINEAR.theta)
    assert sizes.to_frame().loc[0].to_dict() == {
        name: getattr(sizes, name) for name in ("c1", "c2", "c3", "optimum", "paper_optimum")
    }
    record = gt.coverage(
        gt.intervals.gradient_between,
        LINEAR,
        gt.moments(LINEAR, LINEAR.theta).gradient,
        experiment=gt.Pilot(4, 3),
        replications=6,
        rng=2,
    )
    frame = record.to_frame()
    assert len(frame) == 6 * LINEAR.policy.dimension
    np.testing.assert_array_equal(frame.groupby("component", sort=False)["covered"].mean(), record.coverage)


def test_infinite_limits_are_explained():
    rng = np.random.default_rng(1)
    same = gt.Rollouts(rng.integers(0, 2, (12, 4)).astype(float), rng.normal(size=(12, 4, 2)))
    found = gt.intervals.group_size_fieller(same)
    assert np.isinf(found.high)
    assert "do not rule out c1 = 0" in found.note
    watched = gt.intervals.paired_sequence(rng.normal(size=9), rng.normal(size=9))
    assert np.isinf(watched.high[0])
    assert "too few pairs" in watched.note
    assert gt.intervals.paired_difference(rng.normal(size=9), rng.normal(size=9)).note == ""
