"""Laws of success rates with known truth: mixtures of beta laws and points."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.plan.brackets import bernstein, beta_binomial

LANGUAGE_MODEL = "lm-few-shot"


@dataclass(frozen=True)
class RateLaw:
    """A mixture of a beta law and of points.

    Attributes
    ----------
    a, b : float
        Of the beta law.
    points : tuple of (float, float)
        Success rates and their probabilities; the beta law has the rest.
    """

    a: float
    b: float
    points: tuple[tuple[float, float], ...] = ()

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draw success rates."""
        rates = rng.beta(self.a, self.b, shape)
        if self.points:
            values, chances = np.array(self.points).T
            kinds = rng.choice(values.size + 1, shape, p=np.append(chances, max(1.0 - chances.sum(), 0.0)))
            rates = np.where(kinds < values.size, np.append(values, 0.0)[kinds], rates)
        return rates

    def mean(self, coefficients: ArrayLike, low: float = 0.0, high: float = 1.0) -> float:
        """Return the mean of a polynomial in Bernstein's form on the part of the rates from `low` to `high`, exactly."""
        coefficients = np.asarray(coefficients, dtype=np.float64)
        degree = coefficients.size - 1
        k = np.arange(degree + 1.0)
        inside = _cdf(high, self.a + k, self.b + degree - k) - _cdf(low, self.a + k, self.b + degree - k)
        rest = 1.0 - sum(chance for _, chance in self.points)
        total = rest * float(coefficients @ (beta_binomial(degree, self.a, self.b) * inside))
        for value, chance in self.points:
            if low <= value <= high:
                total += chance * float(bernstein(degree, [value])[0] @ coefficients)
        return total


def _cdf(rate: float, a: Array, b: Array) -> Array:
    return np.ones_like(a) if rate >= 1.0 else np.asarray(betainc(a, b, rate))


@cache
def rate_laws() -> dict[str, RateLaw]:
    """Return the laws by name; the language model's are the success rates of its questions, each as likely."""
    problem = gt.gallery.problem(LANGUAGE_MODEL)
    moments = gt.moments(problem, problem.theta)
    questions = tuple(zip(np.clip(moments.value, 0.0, 1.0).tolist(), moments.prompt_weights.tolist(), strict=True))
    return {
        "beta(0.3, 0.5)": RateLaw(0.3, 0.5),
        "beta(2, 2)": RateLaw(2.0, 2.0),
        "near-deterministic": RateLaw(0.05, 0.08),
        "never, always, between": RateLaw(2.0, 5.0, ((0.0, 0.3), (1.0, 0.2))),
        LANGUAGE_MODEL: RateLaw(1.0, 1.0, questions),
    }
