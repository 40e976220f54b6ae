"""Laws of success rates with known truth, mixtures of beta laws and points; and limits of what rewards alone tell of them."""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import betainc

import grpo_theory as gt
from grpo_theory.plan import success_rates
from grpo_theory.plan.expected_step import PLAIN, ratio_range, slope_function, times_rate, times_variance
from grpo_theory.plan.success_rates import Terms, average_terms, bernstein, beta_binomial, mean_limits, ratio_limits, share_terms

LANGUAGE_MODEL = "lm-few-shot"
LEVEL, HARD = 0.95, 0.2
UNIFORM = {"uniform": 1, "uniform, doubled": 2}
"""Shares of groups whose rewards are all equal, of so many times the logged responses."""
SOUGHT = {
    "uniform share": ("uniform", None),
    "uniform share, doubled": ("uniform, doubled", None),
    "step": ("weight", None),
    "weighted rate": ("steep weight times rate", "steep weight"),
    "hard prompts": ("hard", None),
    "hard weight": ("hard weight", "weight"),
    "learning rate": ("step", "step, doubled"),
}
"""What is asked for: the mean over prompts of a function of the success rate, or the ratio of two means."""


class RateLaw(NamedTuple):
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

    def draw(self, shape, rng):
        """Draw success rates."""
        rates = rng.beta(self.a, self.b, shape)
        if self.points:
            values, chances = np.array(self.points).T
            kinds = rng.choice(values.size + 1, shape, p=np.append(chances, max(1.0 - chances.sum(), 0.0)))
            rates = np.where(kinds < values.size, np.append(values, 0.0)[kinds], rates)
        return rates

    def mean(self, coefficients, low=0.0, high=1.0):
        """Return the mean of a polynomial in Bernstein's form on the part of the rates from `low` to `high`, exactly."""
        coefficients = np.asarray(coefficients, dtype=np.float64)
        degree = coefficients.size - 1
        k = np.arange(degree + 1.0)
        below_low, below_high = (betainc(self.a + k, self.b + degree - k, rate) for rate in (low, high))
        rest = 1.0 - sum(chance for _, chance in self.points)
        inside = [(value, chance) for value, chance in self.points if low <= value <= high]
        smooth = coefficients @ (beta_binomial(degree, self.a, self.b) * (below_high - below_low))
        return float(rest * smooth + sum(chance * (bernstein(degree, [value])[0] @ coefficients) for value, chance in inside))


@cache
def laws():
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


def count_tables(successes, size):
    """Return how many prompts of each pilot have 0 to `size` successes, (pilots, size + 1), from successes (pilots, prompts)."""
    pilots = len(successes)
    cells = successes + (size + 1) * np.arange(pilots)[:, None]
    return np.bincount(cells.ravel(), minlength=pilots * (size + 1)).reshape(pilots, size + 1).astype(np.float64)


def honest_limits(tables):
    """Return the limits that the public functions give, of each pilot, from its numbers of prompts (pilots, size + 1)."""
    size, prompts = tables.shape[1] - 1, tables[0].sum()
    k = np.arange(size + 1.0)
    agree = tables @ (k * (k - 1.0) + (size - k) * (size - k - 1.0)) / (prompts * size * (size - 1.0))
    chosen = np.array([success_rates.reference_parameter(share) for share in agree])
    limits = {name: np.empty((2, chosen.size)) for name in SOUGHT}
    for a in np.unique(chosen):
        terms = _terms(size, (float(a), success_rates.power_of_two(prompts)))
        for name, some in limits_of(terms, tables[chosen == a]).items():
            limits[name][:, chosen == a] = some
    return limits


def limits_of(terms, tables):
    """Return limits from terms (size + 1,) for each number of successes, and how many prompts have it."""
    size = tables.shape[1] - 1
    at = {name: replace(one, prompts=tables, responses=int(size * tables[0].sum())) for name, one in terms.items()}
    found = {}
    for name, (above, below) in SOUGHT.items():
        if below is None:
            low, high = mean_limits(at[above], LEVEL)
            found[name] = (low, high) if name == "step" else (np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0))
        else:
            sure = _sure_range(size) if name == "learning rate" else (0.0, 1.0)
            found[name] = ratio_limits(at[above], at[below], LEVEL, sure)
    return found


@cache
def _every(size):
    """Return counts in which each number of successes, 0 to size, comes once."""
    successes = np.arange(size + 1)
    return gt.RewardCounts(np.array([0.0, 1.0]), sparse.csr_array(np.stack([size - successes, successes], axis=1)))


@cache
def _functions(size):
    """Return the functions of the success rate whose means are asked for, but for the shares of uniform groups."""
    weight, doubled = (slope_function(_every(size), "grpo", n) for n in (size, 2 * size))
    steep = slope_function(_every(size), "max_rl", size)
    return {
        "weight": weight,
        "steep weight": steep,
        "steep weight times rate": times_rate(steep),
        "hard": replace(PLAIN, high=HARD),
        "hard weight": replace(weight, high=HARD),
        "step": times_variance(weight),
        "step, doubled": times_variance(doubled),
    }


@cache
def _sure_range(size):
    """Return between what the factor on the learning rate lies for sure, when groups are doubled."""
    return ratio_range(*(slope_function(_every(size), "grpo", n).function for n in (size, 2 * size)))


@cache
def _terms(size, near):
    """Return the library's terms for each number of successes."""
    uniform = {name: share_terms(_every(size), times * size, near) for name, times in UNIFORM.items()}
    return uniform | {name: average_terms(_every(size), one, near) for name, one in _functions(size).items()}


@cache
def seen_terms(size):
    """Return the terms of who takes the rates seen for success rates, so that the noise of small groups stays in."""
    rates = np.arange(size + 1) / size
    values = {name: rates ** (times * size) + (1.0 - rates) ** (times * size) for name, times in UNIFORM.items()}
    values |= {name: one.values(rates, above=True) for name, one in _functions(size).items()}
    return {name: Terms(one, one, (0.0, float(one.max())), (0.0, float(one.max())), 0) for name, one in values.items()}


def truths(law, size):
    """Return what is asked for, exactly."""
    mean = {name: law.mean(one.coefficients, high=one.high) for name, one in _functions(size).items()}
    mean |= {name: law.mean((1.0, *(0.0,) * (times * size - 1), 1.0)) for name, times in UNIFORM.items()}
    return {name: mean[above] / (mean[below] if below else 1.0) for name, (above, below) in SOUGHT.items()}
