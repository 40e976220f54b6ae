"""U14, U15: standardised advantages and token ratios as the group grows, exact.

Off policy, advantages divided by the group's standard deviation are compared with those divided by the prompt's. The weights of
the KL term are compared with its slope. In the controls the deviation has a small constant added, or the standard error stands in
for it, or the policy is another.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation.composition import make_estimator
from grpo_theory.evidence import log_log_slope
from grpo_theory.harness import check
from simulations.sequence.divergences import STEP
from simulations.sequence.parts import composed, of_length
from simulations.sequence.standardised import leave_out, standardised
from simulations.statements import stated

U14 = stated("U14")

PROBLEMS = ("sequence-tabular", "sequence-shared", "linear")
SETTINGS = {"group_sizes": [256, 512, 1024], "drift": 0.5, "stray": 0.01}


def off_the_limit(batch, advantages):
    """The same less what it is with the prompt's own standard deviation."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        variance = leave_out(batch.rewards[b], advantages[b])
        if variance > 0.0:
            for g in range(group_size):
                advantages[b, g] *= 1.0 / np.sqrt(variance) - 1.0 / batch.standard_deviations[b]


def off_by_constant(batch, advantages):
    """Broken: a constant is added to the group's standard deviation, and stays as the group grows."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        variance = leave_out(batch.rewards[b], advantages[b])
        if variance > 0.0:
            for g in range(group_size):
                advantages[b, g] *= 1.0 / (np.sqrt(variance) + 0.005) - 1.0 / batch.standard_deviations[b]


def by_standard_error(batch, advantages):
    """Broken: the standard error of the mean instead of the standard deviation."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        variance = leave_out(batch.rewards[b], advantages[b])
        if variance > 0.0:
            for g in range(group_size):
                advantages[b, g] /= np.sqrt(variance / group_size)


@check(
    *stated("U14/standardised", "U15/variance", "U14/printed", "U14/corrected"),
    cases=lambda quick: [{"problem": name, **SETTINGS} for name in PROBLEMS[: 1 if quick else None]],
    broken={"kernels": (off_by_constant, by_standard_error), "away": 1.0},
    setting="{problem}",
)
def limits(problem, group_sizes, drift, stray, rng, kernels=(off_the_limit, standardised), away=0.0):
    """Log-log slopes in G of the mean squared length of an estimate and of its variance given the prompt, and weights' errors.

    A token's weight W_t is compared with the derivative of -k3 in log pi, with r = pi_0/pi and log pi/pi_0.
    """
    found = gt.gallery.problem(problem)
    steps = rng.normal(size=(2, found.theta.size))
    theta = found.theta + of_length(drift, steps[0])
    estimators = [composed(make_estimator(kernel.__name__, kernel, minimum_group_size=2), "token") for kernel in kernels]
    curves = []
    for size in group_sizes:
        sizes = {"batch_size": 1, "group_size": size, "behaviour": found.theta}
        off, own = (gt.gradient_law(found, theta, estimator, **sizes) for estimator in estimators)
        curves.append((off.trace + float(off.mean @ off.mean), float(own.prompt_weights @ own.prompt_traces)))
    slopes = [log_log_slope(group_sizes, curve)[0] for curve in np.transpose(curves)]
    at = (found.theta, theta, theta + away * of_length(stray, steps[1]))
    then, here, sampled = (found.at(one).token_log_probabilities for one in at)
    stepped = sampled - then + 1j * STEP
    slope = (np.exp(-stepped) + stepped).imag / STEP
    return {
        "U14/standardised": (slopes[0], -1.0),
        "U15/variance": (slopes[1], -1.0),
        "U14/printed": (np.abs(np.expm1(here - then) + slope).max(), 0.0),
        "U14/corrected": (np.abs(np.expm1(then - here) + slope).max(), 0.0),
    }
