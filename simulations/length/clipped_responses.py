"""The ratio of the whole response, cut or clipped, over long responses: simulated, with what has no clip exact beside it.

The policy drifts in two of the directions of `ratios_by_length`. It drifts by 1 nat per response at every length, and by 1/256
nat per token, which is 4 nats at 1,024 tokens. Only bounded weights are simulated. Without a bound, and with a clip by sign, what
decides is too rare to be drawn.

One control has GSPO's narrow widths on the ratio of the whole response instead of the geometric mean. The other has GSPO after
four times the drift. The one with less efficiency is taken.
"""

from dataclasses import replace
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation.parts import AGGREGATIONS, CLIPS, RATIOS
from grpo_theory.harness import check, rows, run
from grpo_theory.problem.gallery import KINDS
from simulations.length.drifts import NEAR, SUCCESS, ahead, drifted
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

CUT, ZEROED, GEOMETRIC = stated("length/cut ratio", "length/clipped ratio", "length/geometric clip")
JUDGED = ("copy", "goal walk", "think until sure")
"""Not the text: one step of 1,024 responses has an efficiency of 0.005 there, and its means would take a thousand times more."""
LONG, PER_TOKEN = 1024, 1.0 / 256.0
LENGTHS, QUICK_LENGTHS = (16, 64, 256, LONG), (64, LONG)
DIRECTIONS = 2
BATCH, GROUP = 16, 16
"""Smaller steps than in `ratios_by_length`: there are four times as many of them, and limits rest on their number."""
REPLICATIONS, QUICK_REPLICATIONS = 144, 48


def whole(name, ratio, clip):
    """Return the leave-one-out estimator with a ratio of the whole response, tokens added up."""
    return gt.Estimator(name, gt.estimators()["rloo"].advantage, RATIOS[ratio], clip, AGGREGATIONS["sum"])


WIDTHS = (3e-4, 4e-4)
"""GSPO's (arXiv 2507.18071)."""
DROPPED, GSPO, NARROW = "dropped above", "geometric", "narrow"
SIMULATED = {
    "cut": whole("cut", "trajectory", CLIPS["cap"]),
    DROPPED: whole(DROPPED, "trajectory", CLIPS["upper only"]),
    "dropped outside": whole("dropped outside", "trajectory", CLIPS["two-sided"]),
    GSPO: whole(GSPO, "geometric", CLIPS["by sign"].with_widths(*WIDTHS)),
    NARROW: whole(NARROW, "trajectory", CLIPS["two-sided"].with_widths(*WIDTHS)),
}
EXACT = {name: whole(name, name, CLIPS["none"]) for name in ("none", "trajectory")}
LOSS = 0.1
"""A tenth of the efficiency is a tenth of the steps."""


def kinds(quick):
    """List the kinds of task."""
    lengths, replications = (QUICK_LENGTHS, QUICK_REPLICATIONS) if quick else (LENGTHS, REPLICATIONS)
    return [{"kind": kind, "lengths": list(lengths), "replications": replications} for kind in JUDGED]


def directions(quick):
    """List the kinds of task and directions of the drift."""
    return [{**one, "direction": d} for one in kinds(quick) for d in range(DIRECTIONS)]


@run()
def steps(kind, lengths, replications, rng):
    """One step of 16 groups of 16, by length, what stays as it is when responses get longer, and direction.

    A response drifts by 1 nat, or by 1/256 nat a token, which is the same at 256 tokens.
    """
    found: dict[str, Any] = {}
    for length in lengths:
        for fixed, nats in {"response": NEAR, "token": length * PER_TOKEN}.items():
            for d in range(DIRECTIONS if fixed == "response" or nats != NEAR else 0):
                problem: Any = KINDS[kind](length, SUCCESS)
                point, seed = problem.at(problem.theta), child_seed(seed_of(rng), len(found))
                theta = drifted(point, nats, d)
                found[f"{length}, {fixed}, {d}"] = measured(problem, point, theta, seed, replications)
    return found


def measured(problem, point, theta, seed, replications):
    """Return efficiency and cosine of each estimator, and what is lost to the cut by dropping, with standard errors."""
    sizes: Any = {"batch_size": BATCH, "group_size": GROUP}
    drawn: Any = {"replications": replications, "rng": seed, "workers": 1, "directions": np.eye(theta.size)}
    simulation = gt.simulate_gradients(problem, theta, list(SIMULATED.values()), behaviour=point.theta, **sizes, **drawn)
    current = replace(point, theta=theta)
    laws = {name: gt.exact.law_between(current, point, one, **sizes) for name, one in EXACT.items()}
    gradient = laws["none"].true_gradient
    found = {name: {"efficiency": (ahead(law), 0.0), "cosine": (law.cosine, 0.0)} for name, law in laws.items()}
    for i, name in enumerate(SIMULATED):
        signed = np.copysign(simulation.efficiency[i], simulation.means[i, 3])
        found[name] = {"efficiency": (signed, simulation.efficiency_standard_error[i])}
        if name != NARROW:  # of which hardly a response is left
            found[name]["cosine"] = cosine(simulation.along[i], simulation.along_covariance[i] / replications, gradient)
    found[DROPPED]["lost to cut"] = lost(simulation, DROPPED, "cut")
    return found


def cosine(mean, covariance, gradient):
    """Return the cosine of an expectation with the gradient, from its mean over replications and that mean's covariance.

    The mean's squared length is too large by the trace, which is taken off.
    """
    length = np.sqrt(max(mean @ mean - np.trace(covariance), 0.0))
    if length == 0.0:
        return np.nan, np.nan
    unit = gradient / np.linalg.norm(gradient)
    value = unit @ mean / length
    slope = (unit - value * mean / length) / length
    return value, np.sqrt(slope @ covariance @ slope)


def lost(simulation, name, other):
    """Return by what share one efficiency is below another, and its standard error from the paired replications."""
    i, j = simulation.index(name), simulation.index(other)
    values, errors = simulation.efficiency, simulation.efficiency_standard_error
    _, apart = simulation.efficiency_difference(name, other)
    quotient = values[i] / values[j]
    both = (errors[i] ** 2 + errors[j] ** 2 - apart**2) / 2.0
    variance = errors[i] ** 2 - 2.0 * quotient * both + quotient**2 * errors[j] ** 2
    return 1.0 - quotient, np.sqrt(max(variance, 0.0)) / values[j]


@rows(of=steps, cases=kinds)
def efficiencies(found, replications):
    """Efficiency and cosine at each length, drift and direction."""
    for where, by_ratio in found.items():
        length, fixed, d = where.split(", ")
        for ratio, quantities in by_ratio.items():
            for quantity, (value, error) in quantities.items():
                row = {"length": int(length), "fixed": fixed, "direction": int(d), "ratio": ratio, "quantity": quantity}
                yield row | {"estimate": value, "standard_error": error, "replications": replications}


@check(CUT, ZEROED, GEOMETRIC, of=steps, cases=directions, broken={"wrong": True}, setting="{kind}, direction {direction}")
def clips(found, direction, replications, wrong=False):
    """What clips of the whole response's ratio do at 1,024 tokens, after a drift of 1 nat."""
    near, far = (found[f"{LONG}, {fixed}, {direction}"] for fixed in ("response", "token"))
    whole, none, cut = (near[name]["efficiency"][0] for name in ("trajectory", "none", "cut"))
    worst = min((near[NARROW]["efficiency"], far[GSPO]["efficiency"]), key=lambda one: one[0])

    def side(start, factor, simulated):
        return start + factor * simulated[0], abs(factor) * simulated[1], replications

    dropped = side(1.0, -1.0 / cut, worst) if wrong else side(0.0, 1.0, near[DROPPED]["lost to cut"])
    return {
        CUT.id: (side(whole, -1.0, worst if wrong else near["cut"]["efficiency"]), 0.0),
        ZEROED.id: (dropped, LOSS),
        GEOMETRIC.id: (side(1.0, -1.0 / none, worst if wrong else near[GSPO]["efficiency"]), LOSS),
    }
