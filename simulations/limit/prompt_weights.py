"""The weights of the limit law as a function of a prompt-only baseline, and the least of them over all baselines."""

from functools import cached_property

import numpy as np
from scipy.optimize import minimize

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.exact import check_optimum
from grpo_theory.theory import Linearisation, leave_one_out_parts, limit_covariance
from simulations.maximum import maximum

FACTOR = 2.0
STARTS = 2


def law_of_noise(curvatures: Array, directions: Array, noise: Array) -> gt.WeightedChiSquare:
    """Return the limit law of an unbiased estimator with the given covariance (d, d), at beta = 2/lambda_min."""
    linear = Linearisation(curvatures, directions, np.diag(curvatures), directions.T @ noise @ directions)
    return linear.gap_law(limit_covariance(linear, FACTOR / curvatures.min()))


def dependence(problem: gt.Problem, best: np.ndarray) -> float:
    """Return the largest ||Cov(Q'WW'Q, Z | x)|| / (sd(Z | x) sqrt(E[||Q'W||^4 | x])): 0 under Corollary 10's assumption."""
    _, directions = check_optimum(problem, best)
    point = problem.at(best)
    p, centred = point.outcome_probabilities, point.rewards - point.moments.value[:, None]
    scores = problem.policy.scores(best)[:, point.outcome_responses] @ directions
    covariance = np.einsum("mo,mo,moi,moj->mij", p, centred, scores, scores)
    power = np.einsum("moi,moi->mo", scores, scores)
    scale = np.sqrt((p * centred**2).sum(axis=1) * (p * power**2).sum(axis=1))
    return float((np.linalg.norm(covariance, axis=(1, 2)) / scale).max())


class PromptBaselines:
    """The weights of the limit law as a function of a baseline C(x), shape (M,), at the maximiser and at one group size.

    With the baseline C one prompt's estimate has the covariance Cov g(X) + E[E[W W' (Z - C)^2 | X] - g(X) g(X)']/G: sums over all
    responses.
    """

    def __init__(self, name: str, group_size: int) -> None:
        self.problem, self.best, _ = maximum(name)
        self.group_size = group_size
        self.curvatures, self.directions = check_optimum(self.problem, self.best)
        point = self.problem.at(self.best)
        self.moments, self.rewards = point.moments, point.rewards
        self._law = point.outcome_probabilities * point.moments.prompt_weights[:, None]
        self._scores = self.problem.policy.scores(self.best)[:, point.outcome_responses]
        gradients = point.moments.prompt_gradients
        self._outer = np.einsum("m,mi,mj->ij", point.moments.prompt_weights, gradients, gradients)
        self._between = leave_one_out_parts(self.problem, self.best)[0]

    def weights(self, baseline: Array) -> Array:
        """Return the weights with a baseline, in descending order."""
        squares = self._law * (self.rewards - baseline[:, None]) ** 2
        within = np.einsum("mo,moi,moj->ij", squares, self._scores, self._scores, optimize=True) - self._outer
        return self.of_noise(self._between + within / self.group_size)

    def of_noise(self, noise: Array) -> Array:
        """Return the weights of an unbiased estimator with the given covariance, in descending order."""
        return law_of_noise(self.curvatures, self.directions, noise).weights

    @cached_property
    def least(self) -> Array:
        """The least value of each weight over all baselines, as a search from several starts finds it."""
        value, rng = self.moments.value, np.random.default_rng(0)
        starts = [value, self.moments.optimal_baseline, *(value + rng.normal(0.0, 0.5, (STARTS, value.size)))]
        return np.array([min(self._search(k, start) for start in starts) for k in range(self.weights(value).size)])

    def _search(self, k: int, start: Array) -> float:
        def height(baseline: Array) -> float:
            return float(np.log(self.weights(baseline)[k]))

        return float(np.exp(minimize(height, start, method="BFGS").fun))

    def lead(self, weights: Array) -> float:
        """Return by what factor some weight, at most, is above the least of any baseline."""
        return float((weights / self.least).max())
