"""T9, T10, T11: the average squared gradient against N, |G| and T.

Runs on a problem of one parameter are exact, with infinitely large groups, or simulated. The controls have no baseline, divide by
the own length, or divide by the squared horizon.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Evidence, Margin, log_log_slope
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from simulations.seeds import child_seed, seed_of
from simulations.sequence.stopping import HIGH, LOW, Fields, fields, mean_path, stopping, update_rule
from simulations.statements import stated

NEAR = Margin(0.1, "Half-way to the next power of N^(1/5), far below the halves that tell the theorems apart.")
T9, T9_LIMIT, T9_G, T9_CORRECTED, T10, T10_LIMIT = stated("T9", "T9/limit", "T9/G", "T9/corrected", "T10", "T10/limit")
T10_N, T11, T11_N, T11_T, T11_FLOOR = stated("T10/N", "T11", "T11/N", "T11/T", "T11/floor")

STEPS, QUICK_STEPS = tuple(64 * 2**k for k in range(11)), tuple(1024 * 2**k for k in range(5))
"""Numbers of updates N of exact runs; the step is 1/(sqrt N log V), as the theorems have it."""
SIMULATED, QUICK_SIMULATED = (64, 1024, 4096, 16384), (64, 1024, 4096)
GROUPS = (2, 4, 16, 64)
FEW_STEPS = 64
ENDED = 0.01
"""How near to its end a run must have come, relative to the squared gradient there."""
RUNS_END = ("own length", "constant")
"""Of the first it is said where its runs end, the second is its control."""
RUNS, QUICK_RUNS = 256, 64
HORIZONS = (2, 4)
LAST = 4
"""Slopes in N are taken from a fourth of the most steps on, where the start is nearly forgotten."""
RULES = {
    "own length": ("own length", "rloo", 1),
    "constant": ("constant", "rloo", 1),
    "no baseline": ("own length", "reinforce", 1),
    "squared": ("constant", "rloo", 2),
}
"""Aggregation, advantage, and the power of T to divide by; the last two are for controls."""


def cells(quick: bool) -> list[Cell]:
    """Exact runs of infinitely large groups, and simulated ones."""
    steps, simulated, runs = (QUICK_STEPS, QUICK_SIMULATED, QUICK_RUNS) if quick else (STEPS, SIMULATED, RUNS)
    exact = [
        Cell({"what": "exact", "horizon": horizon, "equal": equal, "rule": rule, "steps": list(steps[-1:] if equal else steps)})
        for horizon in HORIZONS
        for equal, rules in ((False, ("own length", "constant", "no baseline")), (True, ("constant", "squared")))
        for rule in rules
    ]
    common = {"what": "simulated", "horizon": 2, "runs": runs}
    by_steps = [
        Cell({**common, "equal": False, "rule": rule, "steps": list(simulated), "groups": [2]})
        for rule in ("constant", "own length", "no baseline")
    ]
    by_groups = [
        Cell({**common, "equal": True, "rule": rule, "steps": [FEW_STEPS], "groups": list(GROUPS)})
        for rule in ("own length", "no baseline")
    ]
    return exact + by_steps + by_groups


def _step(steps: int) -> float:
    return 1.0 / (np.sqrt(steps) * np.log(2.0))


def _squared(path: Array, gradient: Any) -> Array:
    """Return the squared gradient along a path."""
    return np.asarray(gradient(np.clip(path, LOW, HIGH)) ** 2)


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Return the average squared gradient for every N and G, and that of the last iterate; G is 0 for infinitely large groups."""
    aggregation, advantage, power = RULES[settings["rule"]]
    horizon, equal = settings["horizon"], settings["equal"]
    known = fields(horizon, equal, aggregation, advantage, power)
    if settings["what"] == "exact":
        return [_exact_row(known, steps) for steps in settings["steps"]]
    own_mean = "dr_grpo" if advantage == "rloo" else advantage
    problem, rule = stopping(horizon, equal), update_rule(aggregation, own_mean, power, horizon)
    table = []
    for steps in settings["steps"]:
        for group_size in settings["groups"]:
            records = gt.simulate_records(
                problem,
                np.zeros(1),
                rule,
                gt.Constant(_step(steps)),
                batch_size=1,
                group_size=group_size,
                steps=steps,
                replications=settings["runs"],
                rng=child_seed(seed_of(rng), steps, group_size),
                workers=1,
            )
            averages = np.concatenate([_squared(one.path[:, :-1, 0], known.gradient).mean(axis=1) for one in records])
            row = {"steps": steps, "group_size": group_size, "last": np.nan, "prediction": np.nan}
            table.append(row | summary(averages))
    return table


def _exact_row(known: Fields, steps: int) -> dict[str, float]:
    """Return a run of the mean update; the prediction is the floor, the squared gradient where the mean update is zero."""
    stays = brentq(lambda x: float(known.update(x)), 0.1, 2.9)
    squares = _squared(mean_path(known.update, _step(steps), steps), known.gradient)
    row = {"steps": steps, "group_size": 0, "last": float(squares[-1]), "prediction": float(known.gradient(stays)) ** 2}
    return row | {"estimate": float(squares[:-1].mean()), **EXACT}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each N and G."""
    return [{name: settings[name] for name in ("horizon", "equal", "rule")} | row for row in results[0]]


def slope(part: pd.DataFrame, along: str, prediction: float) -> Evidence:
    """Return the log-log slope of the left side along a column, as evidence."""
    estimate, error = log_log_slope(part[along], part["estimate"], part["standard_error"])
    return Evidence(estimate, prediction, error, replications=int(part["replications"].min()))


def _last(part: pd.DataFrame) -> pd.DataFrame:
    return part[LAST * part["steps"] >= part["steps"].max()]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Slopes in N, |G| and T, and where own-length runs end."""
    exact, simulated = table[table["group_size"] == 0], table[table["group_size"] > 0]
    for horizon, part in exact.groupby("horizon"):
        yield from _without_noise(f"T = {horizon}", part[~part["equal"]].sort_values("steps"))
    longest = exact[exact["equal"] & (exact["steps"] == exact["steps"].max())]
    by_steps = _last(simulated[~simulated["equal"]].sort_values("steps"))
    by_groups = simulated[simulated["equal"]]
    for statement, setting, part, along, prediction, *rules in (
        (T11_T, "T = 2, 4", longest, "horizon", 1.0 + NEAR.value, "constant", "squared"),
        (T11_N, "T = 2, G = 2", by_steps, "steps", NEAR.value - 0.5, "constant", "no baseline"),
        (T11_FLOOR, "T = 2, G = 2", by_steps, "steps", 0.0, "constant", "own length"),
        (T9_G, f"equal lengths, T = 2, N = {FEW_STEPS}", by_groups, "group_size", NEAR.value - 1.0, "own length", "no baseline"),
    ):
        own, control = (slope(part[part["rule"] == rule], along, prediction) for rule in rules)
        yield statement.claim(setting, own, control)


def _without_noise(setting: str, part: pd.DataFrame) -> Iterator[Claim]:
    by_rule = part.groupby("rule")
    ends = by_rule.last()
    for statement, *rules in ((T9_LIMIT, "own length", "no baseline"), (T10_LIMIT, "constant", "own length")):
        own, control = (Evidence(float(ends.loc[rule, "prediction"]), 0.0) for rule in rules)
        yield statement.claim(setting, own, control)
    floor = float(ends.loc["own length", "prediction"])
    own, control = (Evidence(abs(float(ends.loc[rule, "last"]) / floor - 1.0), ENDED) for rule in RUNS_END)
    yield T9_CORRECTED.claim(setting, own, control)
    own, control = (slope(_last(by_rule.get_group(rule)), "steps", NEAR.value - 0.5) for rule in ("constant", "no baseline"))
    yield T10_N.claim(setting, own, control)
