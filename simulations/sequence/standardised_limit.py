"""U14, U15: standardised advantages and token ratios as the group grows, exact.

Off policy, advantages divided by the group's standard deviation are compared with those divided by the prompt's. The weights of
the KL term are compared with its slope. In the controls the variance or the standard error stands in for the deviation, or the
policy is another.
"""

from collections.abc import Callable, Iterator

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation.composition import make_estimator
from grpo_theory.evidence import Comparison, log_log_slope
from grpo_theory.harness.study import Cell, Settings
from simulations.sequence.divergences import STEP
from simulations.sequence.parts import composed, of_length
from simulations.sequence.standardised import leave_out, standardised
from simulations.statements import stated

U14, STANDARDISED, PRINTED, CORRECTED = stated("U14", "U14/standardised", "U14/printed", "U14/corrected")
VARIANCE = stated("U15/variance")

PROBLEMS = ("sequence-tabular", "sequence-shared", "linear")
GROUP_SIZES = (256, 512, 1024)
DRIFT, STRAY = 0.5, 0.01


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem, exact; quick takes the first alone."""
    settings = {"group_sizes": list(GROUP_SIZES), "drift": DRIFT, "stray": STRAY}
    return [Cell({"problem": name} | settings) for name in PROBLEMS[: 1 if quick else None]]


def off_the_limit(batch, advantages):
    """The same less what it is with the prompt's own standard deviation."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        variance = leave_out(batch.rewards[b], advantages[b])
        if variance > 0.0:
            for g in range(group_size):
                advantages[b, g] *= 1.0 / np.sqrt(variance) - 1.0 / batch.standard_deviations[b]


def off_by_variance(batch, advantages):
    """Broken: the variance instead of the standard deviation, its root forgotten."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        variance = leave_out(batch.rewards[b], advantages[b])
        if variance > 0.0:
            for g in range(group_size):
                advantages[b, g] *= 1.0 / variance - 1.0 / batch.standard_deviations[b]


def by_standard_error(batch, advantages):
    """Broken: the standard error of the mean instead of the standard deviation."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        variance = leave_out(batch.rewards[b], advantages[b])
        if variance > 0.0:
            for g in range(group_size):
                advantages[b, g] /= np.sqrt(variance / group_size)


def squared_size(law: gt.GradientLaw) -> float:
    """Return the mean squared length of an estimate."""
    return law.trace + float(law.mean @ law.mean)


def prompt_variance(law: gt.GradientLaw) -> float:
    """Return the variance of an estimate given the prompt."""
    return float(law.prompt_weights @ law.prompt_traces)


def _with_token_ratios(kernel: Callable[..., None]) -> gt.Estimator:
    return composed(make_estimator(kernel.__name__, kernel, minimum_group_size=2), "token")


RATES = (
    (STANDARDISED, squared_size, _with_token_ratios(off_the_limit), _with_token_ratios(off_by_variance)),
    (VARIANCE, prompt_variance, _with_token_ratios(standardised), _with_token_ratios(by_standard_error)),
)
"""What is measured of the law of an estimator at each group size, of the right one and of a broken one."""


def compare(settings: Settings, rng: np.random.Generator) -> Iterator[Comparison]:
    """Yield log-log slopes in G, and errors of the KL term's weights; the controls send broken kernels, and another policy."""
    name, sizes = settings["problem"], settings["group_sizes"]
    problem = gt.gallery.problem(name)
    steps = rng.normal(size=(2, problem.policy.dimension))
    drift, stray = (of_length(settings[part], step) for part, step in zip(("drift", "stray"), steps, strict=True))
    theta = problem.theta + drift
    for statement, measure, *estimators in RATES:
        curves = ([measure(_law(problem, theta, estimator, size)) for size in sizes] for estimator in estimators)
        slope, broken = (log_log_slope(sizes, curve)[0] for curve in curves)
        yield statement.compare(name, slope, -1.0, broken=broken)
    then, here, astray = (problem.at(at).token_log_probabilities for at in (problem.theta, theta, theta + stray))
    for statement, weights in ((PRINTED, np.expm1(here - then)), (CORRECTED, np.expm1(then - here))):
        gap, broken = (_weight_error(weights, now - then) for now in (here, astray))
        yield statement.compare(name, gap, 0.0, broken=broken)


def _law(problem: gt.Problem, theta: Array, estimator: gt.Estimator, group_size: int) -> gt.GradientLaw:
    sizes = {"batch_size": 1, "group_size": group_size}
    return gt.gradient_law(problem, theta, estimator, **sizes, behaviour=problem.theta)


def _weight_error(weights: Array, log_ratios: Array) -> float:
    """Return the largest error of a token's weight W_t as the derivative of -k3 in log pi, with r = pi_0/pi and log pi/pi_0."""
    stepped = log_ratios + 1j * STEP
    return float(np.abs(weights + (np.exp(-stepped) + stepped).imag / STEP).max())
