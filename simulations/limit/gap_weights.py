"""U12, U13: the weights of the limit law, exact.

The weights are computed for each group size and baseline. In the controls a mean is taken twice, an oracle's values are off, or
means are over pairs.
"""

from functools import cached_property

import numpy as np
from scipy.optimize import minimize

import grpo_theory as gt
from grpo_theory.evidence import log_log_slope
from grpo_theory.evidence.rules import IDENTITY_TOLERANCE
from grpo_theory.exact import check_optimum
from grpo_theory.harness import check
from grpo_theory.theory import Linearisation, leave_one_out_covariance, leave_one_out_parts, limit_covariance
from simulations.kernels import kernel_at
from simulations.maximum import maximum
from simulations.statements import stated

U12, U13, U13_ESTIMATED, U13_CORRELATED = stated("U12", "U13", "U13/estimated", "U13/correlated")

PROBLEMS = ("kl-tabular", "kl-linear", "conflict", "single")
ASSUMED = ("kl-tabular", "indifferent", "balanced")
"""Where Corollary 10's assumption holds."""
GROUP_SIZES = (4, 8, 16)
"""At which all groups are enumerated."""
TWICE = kernel_at("scaled_mean", 2.0, "twice the mean")
"""The control of Corollary 9: a leave-one-out mean that is taken twice has a baseline of 2 V however large the group."""
OFFSET_VALUE = 0.2
"""The control of Corollary 10: an oracle whose values are off by a fifth of the reward's range."""
FACTOR, STARTS = 2.0, 2


def law_of_noise(curvatures, directions, noise):
    """Return the limit law of an unbiased estimator with the given covariance (d, d), at beta = 2/lambda_min."""
    linear = Linearisation(curvatures, directions, np.diag(curvatures), directions.T @ noise @ directions)
    return linear.gap_law(limit_covariance(linear, FACTOR / curvatures.min()))


def dependence(problem, best):
    """Return the largest ||Cov(Q'WW'Q, Z | x)|| / (sd(Z | x) sqrt(E[||Q'W||^4 | x])): 0 under Corollary 10's assumption."""
    _, directions = check_optimum(problem, best)
    point = problem.at(best)
    p, centred = point.outcome_probabilities, point.rewards - point.moments.value[:, None]
    scores = problem.policy.scores(best)[:, point.outcome_responses] @ directions
    covariance = np.einsum("mo,mo,moi,moj->mij", p, centred, scores, scores)
    power = np.einsum("moi,moi->mo", scores, scores)
    scale = np.sqrt((p * centred**2).sum(axis=1) * (p * power**2).sum(axis=1))
    return (np.linalg.norm(covariance, axis=(1, 2)) / scale).max()


class PromptBaselines:
    """The weights of the limit law as a function of a baseline C(x), shape (M,), at the maximiser and at one group size.

    With the baseline C one prompt's estimate has the covariance Cov g(X) + E[E[W W' (Z - C)^2 | X] - g(X) g(X)']/G: sums over all
    responses.
    """

    def __init__(self, name, group_size):
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

    def weights(self, baseline):
        """Return the weights with a baseline, in descending order."""
        squares = self._law * (self.rewards - baseline[:, None]) ** 2
        within = np.einsum("mo,moi,moj->ij", squares, self._scores, self._scores, optimize=True) - self._outer
        return self.of_noise(self._between + within / self.group_size)

    def of_noise(self, noise):
        """Return the weights of an unbiased estimator with the given covariance, in descending order."""
        return law_of_noise(self.curvatures, self.directions, noise).weights

    def of_means(self):
        """Return the weights of the leave-one-out mean, in closed form."""
        return self.of_noise(leave_one_out_covariance(self.problem, self.best, batch_size=1, group_size=self.group_size))

    @cached_property
    def least(self):
        """The least value of each weight over all baselines, as a search from several starts finds it."""
        value, rng = self.moments.value, np.random.default_rng(0)
        starts = [value, self.moments.optimal_baseline, *(value + rng.normal(0.0, 0.5, (STARTS, value.size)))]
        heights = [lambda baseline, k=k: np.log(self.weights(baseline)[k]) for k in range(self.weights(value).size)]
        return np.exp([min(minimize(height, start, method="BFGS").fun for start in starts) for height in heights])

    def lead(self, weights):
        """Return by what factor some weight, at most, is above the least of any baseline."""
        return (weights / self.least).max()


def differences(problem, kernel, sizes):
    """Return the largest differences of weights from the oracle's: all groups enumerated, or without a kernel in closed form."""
    found = []
    for size in sizes:
        at = PromptBaselines(problem, size)
        sampling = {"batch_size": 1, "group_size": size}
        weights = at.of_noise(gt.gradient_covariance(at.problem, at.best, kernel, **sampling)) if kernel else at.of_means()
        found.append(np.abs(weights - at.weights(at.moments.value)).max())
    return found


@check(U12, cases=[{"problem": name} for name in PROBLEMS], broken={"kernel": TWICE})
def difference(problem, kernel="rloo"):
    """A difference that falls as G^-2; the control's falls as G^-1."""
    return log_log_slope(GROUP_SIZES, differences(problem, kernel, GROUP_SIZES))[0], -2.0


@check(U13, U13_CORRELATED, cases=[{"problem": name} for name in (*PROBLEMS, *ASSUMED[1:])], broken={"off": OFFSET_VALUE})
def least(problem, off=0.0):
    """By what factor the oracle's weights lie above the least of any baseline; the control's oracle has values that are off."""
    at = PromptBaselines(problem, 4)
    value, measured = at.moments.value, dependence(at.problem, at.best)
    tried = {"of b*": at.moments.optimal_baseline, "of no baseline": 0.0 * value}
    facts = {"dependence of Q'WW'Q and Z": measured} | {name: at.lead(at.weights(one)) for name, one in tried.items()}
    statement = U13 if measured < IDENTITY_TOLERANCE else U13_CORRELATED
    return {statement.id: (at.lead(at.weights(value + off)), 1.0, facts)}


@check(U13_ESTIMATED, cases=[{"problem": name} for name in ASSUMED], broken={"pairs": True})
def estimated(problem, pairs=False):
    """How far leave-one-out's weights, or those of means over pairs, lie above the least of any baseline."""
    excess = []
    for size in GROUP_SIZES:
        at = PromptBaselines(problem, size)
        between, oracle, second = leave_one_out_parts(at.problem, at.best)
        weights = at.of_noise(between + (oracle + second) / size) if pairs else at.of_means()
        excess.append((weights - at.least).max())
    return log_log_slope(GROUP_SIZES, excess)[0], -2.0
