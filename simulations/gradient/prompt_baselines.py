"""U6: leave-one-out against every prompt-only baseline, by enumeration.

Errors are compared in the limit of large groups, where Assumption 2 holds and where it does not. With a baseline C(x) the trace
at a prompt is 1/G times a parabola in C, which three values of C determine. The parabola's least value is that of the best
baseline there is. Leave-one-out's trace is a_1/G + a_2/(G(G-1)), which two group sizes determine; a_1 is the limit of G times it
as G grows.

In the controls the group's mean is a fifth too small, or is added.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.rules import IDENTITY_TOLERANCE
from grpo_theory.harness import check, rows
from simulations.gradient.baseline_statements import CORRELATED, STRICT_CORRELATED, assumption_facts, correlations
from simulations.kernels import kernel_at
from simulations.statements import stated

PRINTED, STRICT = stated("U6/printed", "U6/strict")
CONSTANTS = (0.0, 0.5, 1.0)
GROUP_SIZES = (8, 16)
SHORT, ADDED = "0.8 of the mean", "mean added"
"""The broken kernels. With a mean that is a fifth too small the baseline tends to 0.8 V, which costs E||W||^2 V^2/25 where b* =
V. With a mean that is added instead of subtracted it tends to -V, always worse than no baseline for V != 0."""
OTHERS = [name for name in gt.gallery.names("assumption") if name not in gt.gallery.names("training")]
CASES = [{"problem": name} for name in (*gt.gallery.names("gradient"), *OTHERS)]
"""Every problem of the gradient, and those on which Assumption 2 holds."""


def least_of_parabola(values):
    """Return the least values over all C of parabolas (3, M) with these values at `CONSTANTS`; where flat, their value."""
    at_0, at_half, at_1 = values
    curvature = 2.0 * (at_0 - 2.0 * at_half + at_1)
    slope = at_1 - at_0 - curvature
    return np.asarray(at_0 - np.divide(slope**2, 4.0 * curvature, out=np.zeros_like(at_0), where=curvature > 0.0))


def limit_of(traces):
    """Return the limits of G times a_1/G + a_2/(G(G-1)), given its values (2, M) at `GROUP_SIZES`."""
    small, large = GROUP_SIZES
    return np.asarray(((large - 1) * large * traces[1] - (small - 1) * small * traces[0]) / (large - small))


def limits(problem):
    """Return what is left of each estimator's error, times G, as groups grow, and of the best baseline's."""

    def traces(estimator, size):
        return gt.gradient_law(problem, problem.theta, estimator, batch_size=1, group_size=size).prompt_traces

    kernels = {"rloo": "rloo", SHORT: kernel_at("scaled_mean", 0.8), ADDED: kernel_at("scaled_mean", -1.0)}
    parabola = np.array([traces(kernel_at("constant_baseline", value), 1) for value in CONSTANTS])
    by_prompt = {"best": least_of_parabola(parabola), "reinforce": parabola[0]}
    by_prompt |= {name: limit_of(np.array([traces(kernel, size) for size in GROUP_SIZES])) for name, kernel in kernels.items()}
    return {name: float(problem.bandit.prompt_weights @ limit) for name, limit in by_prompt.items()}


@check(PRINTED, CORRELATED, STRICT, STRICT_CORRELATED, cases=CASES, broken={"short": SHORT, "added": ADDED}, setting="{problem}")
def corollary(problem, short="rloo", added="rloo"):
    """The corollary where its assumption holds, and the same words as another statement where not."""
    problem = gt.gallery.problem(problem)
    limit, measured = limits(problem), correlations(gt.moments(problem, problem.theta))
    facts = {name: one for name, one in assumption_facts(measured).items() if "corr" in name}
    holds = measured["correlation_max"] < IDENTITY_TOLERANCE
    return {
        (PRINTED if holds else CORRELATED).id: (limit[short] / limit["best"] - 1.0, 0.0, facts),
        (STRICT if holds else STRICT_CORRELATED).id: (limit[added] / limit["reinforce"] - 1.0, 0.0, facts),
    }


@rows(cases=CASES)
def shown(problem):
    """The limits of no baseline and of leave-one-out beside that of the best baseline."""
    found = gt.gallery.problem(problem)
    limit, measured = limits(found), correlations(gt.moments(found, found.theta))
    for name in ("reinforce", "rloo"):
        yield {"estimator": name, "estimate": limit[name], "prediction": limit["best"], **measured}
