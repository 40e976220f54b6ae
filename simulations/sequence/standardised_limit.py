"""U14, U15: standardised advantages and token ratios as the group grows, exact.

Off policy, advantages divided by the group's standard deviation are compared with those divided by the prompt's. The weights of
the KL term are compared with its slope. In the controls deviations have a small constant added or fall with the group, or the
policy is another.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation.registry import make_estimator
from grpo_theory.evidence import log_log_slope
from grpo_theory.harness import check
from simulations.sequence.divergences import STEP
from simulations.sequence.parts import composed, of_length
from simulations.sequence.standardised import leave_out
from simulations.statements import stated

U14 = stated("U14")

PROBLEMS = ("sequence-tabular", "sequence-shared", "linear")
SETTINGS = {"group_sizes": [256, 512, 1024], "drift": 0.5, "stray": 0.01}


NAMES = ("added", "less", "power")
RIGHT, WRONG = ((0.0, 1.0, 0.0), (0.0, 0.0, 0.0)), ((0.005, 1.0, 0.0), (0.0, 0.0, 0.15))
"""What is added to the group's deviation, how much of the limit is taken off, and by which power of G deviations are divided."""


def off_the_limit(batch, advantages):
    """Standardised advantages less what they are with the prompt's own standard deviation."""
    n_groups, group_size = batch.rewards.shape
    added, less, power = batch.parameters[0], batch.parameters[1], batch.parameters[2]
    for b in range(n_groups):
        variance = leave_out(batch.rewards[b], advantages[b])
        if variance > 0.0:
            for g in range(group_size):
                deviation = (np.sqrt(variance) + added) / group_size**power
                advantages[b, g] *= 1.0 / deviation - less / batch.standard_deviations[b]


@check(
    *stated("U14/standardised", "U15/variance", "U14/printed", "U14/corrected"),
    cases=lambda quick: [{"problem": name, **SETTINGS} for name in PROBLEMS[: 1 if quick else None]],
    broken={"kernels": WRONG, "away": 1.0},
    setting="{problem}",
)
def limits(problem, group_sizes, drift, stray, rng, kernels=RIGHT, away=0.0):
    """Log-log slopes in G of the mean squared length of an estimate and of its variance given the prompt, and weights' errors.

    A token's weight W_t is compared with the derivative of -k3 in log pi, with r = pi_0/pi and log pi/pi_0.
    """
    found = gt.gallery.problem(problem)
    steps = rng.normal(size=(2, found.theta.size))
    theta = found.theta + of_length(drift, steps[0])
    kernel = make_estimator(
        "off the limit", off_the_limit, parameters=dict.fromkeys(NAMES, 0.0), minimum_group_size=2, exchangeable=True
    )
    estimators = [composed(kernel.with_parameters(**dict(zip(NAMES, one, strict=True))), "token") for one in kernels]
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
