"""U11: when the limit law of the gap has set in, and how near it is to a normal law, exact.

In the controls exponents are twice as large, and the skewness is a quarter larger.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

import grpo_theory as gt
from grpo_theory.evidence import Comparison, Statement, log_log_slope
from grpo_theory.exact import check_optimum
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.theory import Linearisation, gap_recursion, leave_one_out_covariance, limit_covariance
from simulations.limit.prompt_weights import law_of_noise
from simulations.maximum import maximum
from simulations.statements import stated

U11_TRANSIENT, U11_SKEWNESS, U11_COMPARABLE = stated("U11/transient", "U11/skewness", "U11/comparable")

CROWDS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of prompts."""
SLOW_FACTORS = (0.6, 0.75, 1.0)
STEPS, OFFSET = 1 << 13, 512
SLACK = 0.15
"""Of an exponent, as a share of it: it distinguishes n^-1 from n^-2."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; exact, so quick is no different."""
    return [Cell({"problem": problem}) for problem in ("kl-tabular", "conflict", "crowd")]


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield the distance from the normal by the number of prompts, and else the shortfall from the limit by that of steps."""
    yield from _by_prompts() if settings["problem"] == "crowd" else _by_step(settings["problem"])


def one_prompt_noise(problem: gt.Problem, best: np.ndarray) -> np.ndarray:
    """Return the covariance of one prompt's leave-one-out estimate from four responses."""
    return leave_one_out_covariance(problem, best, batch_size=1, group_size=4)


def _by_prompts() -> Iterator[Comparison | dict[str, Any]]:
    """Yield the largest distance of the standardised law from the normal beside what its skewness predicts, and its rate."""
    distances = []
    for prompts in CROWDS:
        problem = gt.gallery.crowd(prompts)
        best = gt.find_optimum(problem, problem.theta)
        law = law_of_noise(*check_optimum(problem, best), one_prompt_noise(problem, best))
        points = np.linspace(-3.0, 4.0, 701)
        distance = float(np.abs(law.cdf(law.mean() + law.std() * points) - ndtr(points)).max())
        skewness = 2.0**1.5 * (law.weights**3).sum() / (law.weights**2).sum() ** 1.5
        prediction = float(skewness / (6.0 * np.sqrt(2.0 * np.pi)))
        distances.append(distance)
        yield {"problem": "crowd", "quantity": "distance", "prompts": prompts, "estimate": distance, "prediction": prediction}
    # Distance and prediction are now those of the largest crowd, which is nearest to a normal law.
    own, wrong = (abs(distance / (factor * prediction) - 1.0) for factor in (1.0, 1.25))
    yield U11_SKEWNESS.compare("crowd (64 prompts)", own, 0.01, broken=wrong)
    yield _rate(U11_COMPARABLE, "crowd (2 to 64 prompts)", CROWDS, distances, (-0.5, -1.0))


def _by_step(name: str) -> Iterator[Comparison | dict[str, Any]]:
    """Yield the shortfall of E n Delta from its limit, started at the maximiser, when it is below 5%, and its rate."""
    problem, best, _ = maximum(name)
    curvatures, directions = check_optimum(problem, best)
    noise = directions.T @ one_prompt_noise(problem, best) @ directions
    n = 2 ** np.arange(10, int(np.log2(STEPS)) + 1)
    for factor in SLOW_FACTORS:
        beta = factor / curvatures.min()
        steps = gt.Harmonic(beta, OFFSET).steps(STEPS)
        limits, shortfalls = [], []
        for k, curvature in enumerate(curvatures):
            alone = Linearisation(curvatures[[k]], directions[:, [k]], np.array([[curvature]]), noise[[k]][:, [k]])
            limits.append(alone.gap(limit_covariance(alone, beta)))
            shortfalls.append(1.0 - (n + OFFSET) * gap_recursion(alone, steps, np.zeros((1, 1)))[n - 1] / limits[-1])
        shares = np.array(limits) / np.sum(limits)
        set_in = _set_in(shares * [shortfall[0] for shortfall in shortfalls], 2.0 * beta * curvatures - 1.0, n[0] + OFFSET)
        slowest = shortfalls[int(curvatures.argmin())]
        for at, value in zip(n, slowest, strict=True):
            setting = {"problem": name, "factor": factor, "n": int(at) + OFFSET, "set_in": set_in}
            yield setting | {"quantity": "shortfall", "estimate": float(value)}
        exponent = 1.0 - 2.0 * factor
        where = f"{name} (beta lambda_min = {factor:g})"
        yield _rate(U11_TRANSIENT, where, n + OFFSET, slowest, (exponent, 2.0 * exponent))


def _set_in(shortfalls: np.ndarray, exponents: np.ndarray, n: float) -> float:
    """Return the n at which sum_k s_k (n_0/n)^(exponent_k) is 5%, given the terms s_k at n_0."""
    return float(n * np.exp(brentq(lambda x: shortfalls @ np.exp(-exponents * x) - 0.05, -20.0, 200.0)))


def _rate(statement: Statement, where: str, x: Any, y: Any, exponents: tuple[float, float]) -> Comparison:
    """A slope against its exponent, and against a wrong one."""
    slope, _ = log_log_slope(x, y)
    exponent, wrong = exponents
    return statement.compare(where, slope, exponent, broken=slope, broken_prediction=wrong, margin=SLACK * abs(exponent))
