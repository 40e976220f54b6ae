"""Schulman's note on approximating KL (2020): means and variances of k1, k2 and k3 of whole responses, exactly.

In the controls responses come from another policy than is meant, or the weight of the control variate is less than 1.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.literature.drawn import FEATURES, TABLE, TREE, UNEVEN, drawn, orders, over, worst
from simulations.statements import stated

PRINTED = {0.1: (20.0, 1.42, 1.42), 1.0: (2.0, 1.73, 1.7)}
"""Deviations over KL of k1, k2 and k3, by the distance of two normal laws."""


def estimates(logs):
    """Return k1, k2 and k3 for log r (..., K), shape (3, ..., K)."""
    return np.stack([-logs, 0.5 * logs**2, np.expm1(logs) - logs])


def spread(p, values):
    """Return the variance under p over the last axis, without the cancellation of a difference."""
    centred = values - (p * values).sum(axis=-1, keepdims=True)
    return (p * centred**2).sum(axis=-1)


@check(
    *stated("schulman/unbiased", "schulman/other direction"),
    cases=over(kind=(TABLE, FEATURES, TREE, UNEVEN)),
    broken={"stray": 0.05},
)
def values(kind, rng, stray=0.0):
    """Means beside divergences, of which the package knows one and the other is that of the exchanged policies."""
    problem = drawn(kind, rng)
    away, aside = rng.normal(size=(2, problem.theta.size))
    reference, point = problem.at(problem.theta + 0.7 * away), problem.at()
    sampled = problem.at(problem.theta + stray * aside).probabilities
    r = reference.probabilities / point.probabilities
    means = [(sampled * (weight * (r - 1.0) - np.log(r))).sum() for weight in (0.0, 0.5, 1.0, 2.0)]
    there = gt.observe(problem, problem.theta, gt.Observable.kl(reference.probabilities)).value
    back = gt.observe(problem, reference.theta, gt.Observable.kl(point.probabilities)).value
    return {
        "schulman/unbiased": (means, np.full(4, there)),
        "schulman/other direction": ((sampled * (r * np.log(r) - (r - 1.0))).sum(), back),
    }


@check(*stated("schulman/k2", "schulman/k3 variance, near"), cases=over(kind=(TABLE, TREE)), broken={"factor": 1.1})
def near(kind, rng, factor=1.0):
    """Policies that approach each other; in the control log r is a tenth too large in k2, and k1 has its weight in k3."""
    problem = drawn(kind, rng)
    p, away = problem.at().probabilities[0], rng.normal(size=problem.theta.size)

    def left(distance):
        logs = np.log(problem.at(problem.theta + distance * away).probabilities[0] / p)
        k1, _, k3 = estimates(logs)
        return abs(p @ (0.5 * (factor * logs) ** 2) - p @ k3), spread(p, k3 + (factor - 1.0) * k1) / spread(p, k1)

    means, variances = orders(left)
    return {"schulman/k2": (means, 3.0), "schulman/k3 variance, near": (variances, 2.0)}


@check(
    *stated("schulman/positive", "schulman/k3 variance"),
    cases=over(responses=(2, 3)),
    broken={"weight": 0.5},
    sound={"logits": 0.1},
    setting="{responses} responses, worst case found",
)
def far(responses, rng, weight=1.0, logits=4.0):
    """Seek two policies of which k3 has a negative value, or more variance than k1; in the sound case they are near."""

    def laws(x):
        return (one - np.logaddexp.reduce(one) for one in np.split(x, 2))

    def least(x):
        own, reference = laws(x)
        return -(weight * np.expm1(reference - own) - (reference - own)).min(), 0.0

    def variances(x):
        own, reference = laws(x)
        k1, _, k3 = estimates(reference - own)
        return spread(np.exp(own), k3 + (weight - 1.0) * np.expm1(reference - own)), spread(np.exp(own), k1)

    box = [(-logits, logits)] * (2 * responses)
    return {
        "schulman/positive": worst(least, box, rng, climbs=2),
        "schulman/k3 variance": worst(variances, box, rng, climbs=2, compare="ratio"),
    }


@check(stated("schulman/examples"), cases=over(shift=PRINTED), broken={"scale": 1.1}, setting="shift {shift}")
def examples(shift, scale=1.0):
    """Two normal laws, by quadrature; in the control the deviation of the second is a tenth larger in the logs."""
    x, weights = np.polynomial.hermite_e.hermegauss(80)
    logs = scale * (shift * x - 0.5 * shift**2)
    return np.sqrt(spread(weights / weights.sum(), estimates(logs))) / (0.5 * shift**2), np.array(PRINTED[shift])
