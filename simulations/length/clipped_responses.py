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
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation.aggregation import AGGREGATIONS
from grpo_theory.estimation.ratio import CLIPS, RATIOS
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.problem import ChainPoint
from grpo_theory.problem.chains import KINDS
from simulations.length.drifts import NEAR, SUCCESS, ahead, drifted, generator_of_direction
from simulations.length.points import chain_point
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


def _whole(name: str, ratio: str, clip: gt.Clip) -> gt.Estimator:
    return gt.Estimator(name, gt.estimators()["rloo"].advantage, RATIOS[ratio], clip, AGGREGATIONS["sum"])


WIDTHS = (3e-4, 4e-4)
"""GSPO's (arXiv 2507.18071)."""
DROPPED, GSPO, NARROW = "dropped above", "geometric", "narrow"
SIMULATED = {
    "cut": _whole("cut", "trajectory", CLIPS["cap"]),
    DROPPED: _whole(DROPPED, "trajectory", CLIPS["upper only"]),
    "dropped outside": _whole("dropped outside", "trajectory", CLIPS["two-sided"]),
    GSPO: _whole(GSPO, "geometric", CLIPS["by sign"].with_widths(*WIDTHS)),
    NARROW: _whole(NARROW, "trajectory", CLIPS["two-sided"].with_widths(*WIDTHS)),
}
EXACT = {name: _whole(name, name, CLIPS["none"]) for name in ("none", "trajectory")}
LOSS = 0.1
"""A tenth of the efficiency is a tenth of the steps."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each kind of task."""
    lengths, replications = (QUICK_LENGTHS, QUICK_REPLICATIONS) if quick else (LENGTHS, REPLICATIONS)
    return [Cell({"kind": kind, "lengths": list(lengths), "replications": replications}) for kind in JUDGED]


def drifts(length: int) -> dict[str, float]:
    """Return the drift in nats a response, by what stays as it is when responses get longer; at 256 tokens they are one."""
    return {"response": NEAR} | ({"token": length * PER_TOKEN} if length * PER_TOKEN != NEAR else {})


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> list[dict[str, Any]]:
    """Simulate one step of 16 groups of 16 at every length, drift and direction."""
    table, seed = [], seed_of(rng)
    places = [
        (length, fixed, nats, d)
        for length in settings["lengths"]
        for fixed, nats in drifts(length).items()
        for d in range(DIRECTIONS)
    ]
    for number, (length, fixed, nats, d) in enumerate(places):
        problem = KINDS[settings["kind"]](length, SUCCESS)
        point = chain_point(problem)
        theta = drifted(point, nats, generator_of_direction(d))
        common = {"length": length, "fixed": fixed, "nats": nats, "direction": d}
        table += [common | one for one in steps(problem, point, theta, child_seed(seed, number), settings["replications"])]
    return table


def steps(
    problem: gt.Problem, point: ChainPoint, theta: Array, seed: np.random.SeedSequence, replications: int
) -> list[dict[str, Any]]:
    """Return efficiency and cosine of each estimator, and what the judged ones lose to another, with standard errors."""
    simulation = gt.simulate_gradients(
        problem,
        theta,
        list(SIMULATED.values()),
        batch_size=BATCH,
        group_size=GROUP,
        replications=replications,
        rng=seed,
        workers=1,
        behaviour=point.theta,
        directions=np.eye(theta.size),
    )
    current = replace(point, theta=theta)
    laws = {name: gt.exact.law_between(current, point, one, batch_size=BATCH, group_size=GROUP) for name, one in EXACT.items()}
    gradient = laws["none"].true_gradient
    rows = [
        {"ratio": name, "quantity": quantity, "estimate": value, "standard_error": 0.0}
        for name, law in laws.items()
        for quantity, value in (("efficiency", ahead(law)), ("cosine", law.cosine))
    ]
    for name in SIMULATED:
        i = simulation.index(name)
        signed = float(np.copysign(simulation.efficiency[i], simulation.means[i, 3]))
        values = {"efficiency": (signed, float(simulation.efficiency_standard_error[i]))}
        if name != NARROW:  # of which hardly a response is left
            values["cosine"] = cosine(simulation.along[i], simulation.along_covariance[i] / replications, gradient)
        if name == DROPPED:
            values["lost to cut"] = lost(simulation, name, "cut")
        rows += [{"ratio": name, "quantity": q, "estimate": v, "standard_error": s} for q, (v, s) in values.items()]
    return rows


def cosine(mean: Array, covariance: Array, gradient: Array) -> tuple[float, float]:
    """Return the cosine of an expectation with the gradient, from its mean over replications and that mean's covariance.

    The mean's squared length is too large by the trace, which is taken off.
    """
    length = float(np.sqrt(max(mean @ mean - np.trace(covariance), 0.0)))
    if length == 0.0:
        return float("nan"), float("nan")
    unit = gradient / np.linalg.norm(gradient)
    value = float(unit @ mean / length)
    slope = (unit - value * mean / length) / length
    return value, float(np.sqrt(slope @ covariance @ slope))


def lost(simulation: gt.GradientSimulation, name: str, other: str) -> tuple[float, float]:
    """Return by what share one efficiency is below another, and its standard error from the paired replications."""
    i, j = simulation.index(name), simulation.index(other)
    values, errors = simulation.efficiency, simulation.efficiency_standard_error
    _, apart = simulation.efficiency_difference(name, other)
    quotient = values[i] / values[j]
    both = (errors[i] ** 2 + errors[j] ** 2 - apart**2) / 2.0
    variance = errors[i] ** 2 - 2.0 * quotient * both + quotient**2 * errors[j] ** 2
    return float(1.0 - quotient), float(np.sqrt(max(variance, 0.0)) / values[j])


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each length, drift, direction, ratio and quantity."""
    common = {"kind": settings["kind"], "replications": settings["replications"], "prediction": np.nan}
    return [common | row for result in results for row in result]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Read off the statements at 1,024 tokens, after a drift of 1 nat."""
    claimed, long = [], table[table["length"] == LONG]
    for (kind, d), here in long.groupby(["kind", "direction"], sort=False):
        near, far = (
            here[here["fixed"] == fixed].set_index(["ratio", "quantity"]).sort_index() for fixed in ("response", "token")
        )
        worst = min((near.loc[(NARROW, "efficiency")], far.loc[(GSPO, "efficiency")]), key=lambda row: row["estimate"])
        whole, none, cut = (float(near.loc[(name, "efficiency"), "estimate"]) for name in ("trajectory", "none", "cut"))
        setting = f"{kind}, direction {d}"
        own = _against(near.loc[("cut", "efficiency")], whole, -1.0, 0.0)
        claimed.append(CUT.claim(setting, own, _against(worst, whole, -1.0, 0.0)))
        own = _against(near.loc[(DROPPED, "lost to cut")], 0.0, 1.0, LOSS)
        claimed.append(ZEROED.claim(setting, own, _against(worst, 1.0, -1.0 / cut, LOSS)))
        own = _against(near.loc[(GSPO, "efficiency")], 1.0, -1.0 / none, LOSS)
        claimed.append(GEOMETRIC.claim(setting, own, _against(worst, 1.0, -1.0 / none, LOSS)))
    return claimed


def _against(row: pd.Series, start: float, factor: float, bound: float) -> Evidence:
    """Return start + factor times what was simulated, against a bound."""
    value, error = start + factor * float(row["estimate"]), abs(factor) * float(row["standard_error"])
    return Evidence(value, bound, error, replications=int(row["replications"]))
