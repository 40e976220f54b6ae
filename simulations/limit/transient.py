"""How far the mean gap of a run that starts at the maximiser is from its limit, and when it is near."""

import numpy as np
from scipy.optimize import brentq

import grpo_theory as gt
from grpo_theory.arrays import Array, Integers
from grpo_theory.exact import check_optimum
from grpo_theory.theory import Linearisation, gap_recursion, leave_one_out_covariance, limit_covariance
from simulations.maximum import maximum

OFFSET = 512


def shortfall(name: str, factor: float, n_steps: int) -> tuple[Integers, Array, float]:
    """Return n + offset and the relative shortfall of the slowest direction there, and the n at which that of all is below 5%."""
    problem, best, _ = maximum(name)
    curvatures, directions = check_optimum(problem, best)
    noise = directions.T @ leave_one_out_covariance(problem, best, batch_size=1, group_size=4) @ directions
    n = 2 ** np.arange(10, int(np.log2(n_steps)) + 1)
    beta = factor / curvatures.min()
    steps = gt.Harmonic(beta, OFFSET).steps(n_steps)
    limits, shortfalls = [], []
    for k, curvature in enumerate(curvatures):
        alone = Linearisation(curvatures[[k]], directions[:, [k]], np.array([[curvature]]), noise[[k]][:, [k]])
        limits.append(alone.gap(limit_covariance(alone, beta)))
        shortfalls.append(1.0 - (n + OFFSET) * gap_recursion(alone, steps, np.zeros((1, 1)))[n - 1] / limits[-1])
    shares = np.array(limits) / np.sum(limits)
    set_in = _set_in(shares * [one[0] for one in shortfalls], 2.0 * beta * curvatures - 1.0, n[0] + OFFSET)
    return n + OFFSET, shortfalls[int(curvatures.argmin())], set_in


def _set_in(shortfalls: np.ndarray, exponents: np.ndarray, n: float) -> float:
    """Return the n at which sum_k s_k (n_0/n)^(exponent_k) is 5%, given the terms s_k at n_0."""
    return float(n * np.exp(brentq(lambda x: shortfalls @ np.exp(-exponents * x) - 0.05, -20.0, 200.0)))
