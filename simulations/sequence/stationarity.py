"""T9, T10, T11: the average squared gradient of a run against N, |G| and T, on a problem of one parameter."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Evidence, log_log_slope
from grpo_theory.harness.study import Cell, Rows, Settings
from simulations.claims import claim, unconverted
from simulations.sequence.stopping import HIGH, LOW, fields, mean_path, stopping, update_rule

STEPS, QUICK_STEPS = tuple(64 * 2**k for k in range(11)), tuple(1024 * 2**k for k in range(5))
"""Numbers of updates N of exact runs; the step is 1/(sqrt N log V), as the theorems have it."""
SIMULATED, QUICK_SIMULATED = (64, 1024, 4096, 16384), (64, 1024, 4096)
GROUPS = (2, 4, 16, 64)
FEW_STEPS = 64
NEAR = 0.01
"""How near to its end a run must have come, relative to the squared gradient there."""
RUNS_END = ("own length", "constant")
"""Of the first it is said where its runs end, the second is its control."""
RUNS, QUICK_RUNS = 256, 64
HORIZONS = (2, 4)
LAST = 4
"""Slopes in N are taken from a fourth of the most steps on, where the start is nearly forgotten."""
MARGIN = 0.1
"""How near a slope must be: half-way to the next power of N^(1/5), far below the halves that tell the theorems apart."""
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
        for equal, rule in (
            (False, "own length"),
            (False, "constant"),
            (False, "no baseline"),
            (True, "constant"),
            (True, "squared"),
        )
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


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, Any]]:
    """Return the average squared gradient for every N and G, and that of the last iterate."""
    aggregation, advantage, power = RULES[settings["rule"]]
    horizon, equal = settings["horizon"], settings["equal"]
    found_fields = fields(horizon, equal, aggregation, advantage, power)
    found = []
    if settings["what"] == "exact":
        stays = brentq(lambda x: float(found_fields.update(x)), 0.1, 2.9)
        for steps in settings["steps"]:
            squares = _squared(mean_path(found_fields.update, _step(steps), steps), found_fields.gradient)
            row = {"steps": steps, "group_size": 0, "estimate": float(squares[:-1].mean()), "error": 0.0, "runs": 0}
            found.append(row | {"last": float(squares[-1]), "at_zero": float(found_fields.gradient(stays)) ** 2})
        return found
    own_mean = "dr_grpo" if advantage == "rloo" else advantage
    problem, rule = stopping(horizon, equal), update_rule(aggregation, own_mean, power, horizon)
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
                rng=np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, steps, group_size)),
                workers=1,
            )
            averages = np.concatenate([_squared(one.path[:, :-1, 0], found_fields.gradient).mean(axis=1) for one in records])
            error = float(averages.std(ddof=1) / np.sqrt(averages.size))
            found.append({"steps": steps, "group_size": group_size, "estimate": float(averages.mean()), "error": error})
            found[-1] |= {"runs": averages.size, "last": float("nan"), "at_zero": float("nan")}
    return found


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each N and G, which is 0 for infinitely large groups; the prediction is the floor, where it is known."""
    common = {name: settings[name] for name in ("horizon", "equal", "rule")}
    return [
        common
        | {name: row[name] for name in ("steps", "group_size", "last")}
        | {"prediction": row["at_zero"], "estimate": row["estimate"]}
        | {"standard_error": row["error"], "replications": row["runs"]}
        for row in results[0]
    ]


def slope(part: pd.DataFrame, along: str, prediction: float, margin: float = 0.0) -> Evidence:
    """Return the log-log slope of the left side along a column, as evidence."""
    estimate, error = log_log_slope(part[along], part["estimate"], part["standard_error"])
    return Evidence(estimate, prediction, error, margin, int(part["replications"].min()))


def _last(part: pd.DataFrame) -> pd.DataFrame:
    return part[LAST * part["steps"] >= part["steps"].max()]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Slopes in N, |G| and T, and where own-length runs end."""
    exact, simulated = table[table["group_size"] == 0], table[table["group_size"] > 0]
    found = []
    for horizon, part in exact.groupby("horizon"):
        setting = f"T = {horizon}"
        late = part[~part["equal"]].sort_values("steps").groupby("rule")
        ends = late.last()
        for statement, rule, control in (("T9/limit", "own length", "no baseline"), ("T10/limit", "constant", "own length")):
            both = (Evidence(float(ends.loc[one, "prediction"]), 0.0) for one in (rule, control))
            found.append(claim(statement, setting, *both))
        floor = float(ends.loc["own length", "prediction"])
        both = (Evidence(abs(float(ends.loc[rule, "last"]) / floor - 1.0), NEAR) for rule in RUNS_END)
        found.append(claim("T9/corrected", setting, *both))
        both = (slope(_last(late.get_group(rule)), "steps", MARGIN - 0.5) for rule in ("constant", "no baseline"))
        found.append(claim("T10/N", setting, *both))
    longest = exact[exact["equal"] & (exact["steps"] == exact["steps"].max())]
    both = (slope(longest[longest["rule"] == rule], "horizon", 1.0 + MARGIN) for rule in ("constant", "squared"))
    found.append(claim("T11/T", "T = 2, 4", *both))
    by_steps = simulated[~simulated["equal"]].sort_values("steps")
    noisy = {str(rule): _last(one) for rule, one in by_steps.groupby("rule")}
    both = (slope(noisy[rule], "steps", MARGIN - 0.5) for rule in ("constant", "no baseline"))
    found.append(claim("T11/N", "T = 2, G = 2", *both))
    both = (slope(noisy[rule], "steps", 0.0, MARGIN) for rule in ("constant", "own length"))
    found.append(claim("T11/floor", "T = 2, G = 2", *both))
    by_groups = simulated[simulated["equal"]].groupby("rule")
    both = (slope(by_groups.get_group(rule), "group_size", MARGIN - 1.0) for rule in ("own length", "no baseline"))
    found.append(claim("T9/G", f"equal lengths, T = 2, N = {FEW_STEPS}", *both))
    return found


STUDY = unconverted(
    "stationarity",
    "T9, T10, T11: the average squared gradient against N, |G| and T",
    cells,
    compute,
    rows,
    claims,
    ("T9/limit", "T9/G", "T9/corrected", "T10/limit", "T10/N", "T11/N", "T11/T", "T11/floor"),
)
