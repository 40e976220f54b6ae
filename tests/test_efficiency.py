"""Efficiency, (g . E ghat)^2/(||g||^2 E||ghat||^2): by enumeration, by the steps that it is about, and simulated."""

import numpy as np
import pytest
from enumeration import case
from scipy.optimize import minimize_scalar

import grpo_theory as gt

SIZES = {"batch_size": 2, "group_size": 3}


def test_one_less_the_efficiency_is_the_error_of_the_best_multiple():
    c = case("head", "graded")
    law = gt.gradient_law(c.problem, c.theta, "grpo", **SIZES)
    g = law.true_gradient

    def error(factor):
        return factor**2 * law.trace + ((factor * law.mean - g) ** 2).sum()

    best = minimize_scalar(error, options={"xtol": 1e-12}).fun
    assert 1.0 - best / (g @ g) == pytest.approx(law.efficiency, rel=1e-9)


def test_an_estimate_of_zero_has_no_efficiency_and_a_gradient_of_zero_none_to_compare_with():
    c = case("linear", "binary")
    one = {"batch_size": 2, "group_size": 1}
    assert gt.efficiency(c.problem, c.theta, "dr_grpo", **one) == 0.0
    assert np.isnan(gt.gradient_law(c.problem, c.theta, "dr_grpo", **one).cosine)
    run = gt.simulate_gradients(c.problem, c.theta, "dr_grpo", **one, replications=10, rng=0)
    assert run.efficiency[0] == run.efficiency_standard_error[0] == 0.0
    theta = np.array([0.3, -0.7, 0.1, 0.0, 0.2, -0.4])  # the gradient is 0 up to rounding
    laws = np.tile([[0.2, 0.5, 0.3], [0.25, 0.4, 0.35], [0.3, 0.3, 0.4]], (2, 1, 1))
    flat = gt.Problem(gt.Bandit.from_law([0.0, 0.1, 0.2], laws), gt.TabularSoftmax(2, 3), theta=theta)
    assert 0.0 < gt.moments(flat, theta).gradient_squared_norm < 1e-30
    with pytest.raises(ValueError, match="the gradient is 0 at theta"):
        gt.efficiency(flat, flat.theta, "rloo", **SIZES)
    still = gt.simulate_gradients(flat, flat.theta, "rloo", **SIZES, replications=10, rng=0)
    with pytest.raises(ValueError, match="the gradient is 0 at theta"):
        _ = still.efficiency
    assert still.to_frame()["efficiency"].isna().all()


def test_simulated_efficiencies_are_the_exact_ones_and_their_errors_the_spread_of_many_simulations():
    """Of 400 simulations: a standard deviation is known to 3.5%, so 15% is allowed; unpaired differences are far outside.

    An efficiency's bias is of order 1/1000 of it. That of a batch of twice as many prompts is told from it.
    """
    c, names = case("head", "graded"), ["grpo", "rloo"]
    runs = [
        gt.simulate_gradients(
            c.problem, c.theta, names, **SIZES, replications=1000, rng=np.random.SeedSequence([3, seed]), workers=1
        )
        for seed in range(400)
    ]
    spread = np.std([run.efficiency for run in runs], axis=0, ddof=1)
    said = np.mean([run.efficiency_standard_error for run in runs], axis=0)
    np.testing.assert_allclose(said, spread, rtol=0.15)
    mean, allowed = np.mean([run.efficiency for run in runs], axis=0), 4.9 * spread / np.sqrt(400)
    for batch_size in (2, 4):
        sizes = {"batch_size": batch_size, "group_size": 3}
        exact = np.array([gt.efficiency(c.problem, c.theta, name, **sizes) for name in names])
        assert ((np.abs(mean - exact) < allowed + 0.003 * exact) == (batch_size == 2)).all()
    frame = runs[0].to_frame()
    np.testing.assert_array_equal(frame["efficiency"], runs[0].efficiency)
    np.testing.assert_array_equal(frame["efficiency_standard_error"], runs[0].efficiency_standard_error)
    differences = np.array([run.efficiency_difference(*names) for run in runs])
    paired = np.std(differences[:, 0], ddof=1)
    assert differences[:, 1].mean() == pytest.approx(paired, rel=0.15)
    assert np.hypot(*said) != pytest.approx(paired, rel=0.15)


def observed(gain, seed, replications=400):
    """Simulations of two estimators whose mean gains have errors of 1, and whose power varies."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(replications, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]]) * np.sqrt(replications)
    observations = np.zeros((2, replications, 4))
    observations[..., 2] = 1e6 * rng.uniform(0.5, 1.5, size=replications)
    observations[..., 3] = np.asarray(gain)[:, None] + noise.T
    return gt.GradientSimulation.of(("one", "other"), observations, gradient_squared_norm=1.0)


@pytest.mark.parametrize("gain", [0.0, 1.0, 4.0])
def test_limits_of_an_efficiency_hold_wherever_its_mean_gain_is(gain):
    """Of 4,000 simulations, an error of 0.34%: with the mean gain 0 to 4 of its errors from 0.

    Where both signs of the root are covered the chance to cover is up to 97.5%.
    """
    truth, runs = gain**2 / 1e6, [observed((gain, -gain), seed) for seed in range(4000)]
    low, high = np.moveaxis([run.efficiency_interval(0.95) for run in runs], 1, 0)
    covers = ((low <= truth) & (truth <= high)).mean(axis=0)
    assert (covers > 0.95 - 4.9 * 0.0034).all()
    assert (covers < 0.975 + 4.9 * 0.0025).all()
    deviations = np.array([(run.efficiency[0] - truth) / run.efficiency_standard_error[0] for run in runs])
    assert np.abs(deviations).max() < 30.0
    if gain > 0.0:
        to_first_order = [2.0 * np.sqrt(run.efficiency[0] / 1e6) for run in runs]
        wrong = np.array([(run.efficiency[0] - truth) / error for run, error in zip(runs, to_first_order, strict=True)])
        assert gain > 2.0 or np.abs(wrong).max() > 300.0
