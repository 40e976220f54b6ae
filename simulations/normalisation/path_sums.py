"""N5, N6, N7: sums of squared gradients along paths against their bounds, and which update is ahead, prompts orthogonal.

Prompts that are orthogonal do not move each other, so a prompt's state after t updates is that after k of its own, k being
binomial (t, 1/n): means over paths are exact sums.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.evidence.reading import average, exact
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory import divided_gain_constant, plain_gain_constant
from simulations.claims import claim, unconverted
from simulations.normalisation.ascent import SHARP_STEPS, Prompts, Step
from simulations.normalisation.prompts import MIXTURES, mixture, prompts

SETTINGS = (*MIXTURES, "learnt")
LEARNT = 0.9
"""The success rate at the start of prompts that have been learnt before."""
N_PROMPTS = 8
HORIZONS, QUICK_HORIZONS = (8, 32, 128, 256, 512, 1024, 2048, 4096), (8, 128, 1024)
CHECKED = 1024
"""Bounds are checked from this horizon on: by then the hardest prompts have learnt, or not, if the update is broken."""
LEVEL = 0.9
"""Of the mean success, for the time to it."""
PRINTED = 16.0 / 3.0
"""2 (8/3): the constant of Theorem 3.2."""
ARMS = {
    "plain": Step(1.0, 0.0),
    "divided": Step(0.5, 0.5),
    "multiplied": Step(0.5, -0.5),
    "plain, best": Step(SHARP_STEPS[0], 0.0),
    "divided, best": Step(SHARP_STEPS[1], 0.5),
    "multiplied, best": Step(SHARP_STEPS[1], -0.5),
}
"""The printed steps (X = 1), those of the best guarantees, and broken: multiplied by the standard deviation instead."""


class Path(NamedTuple):
    """Means over paths of what a prompt is before each of T updates, and after the last."""

    success: Array
    deviation: Array
    square: Array
    norm: Array
    weighted: Array


def own_path(rate: float, step: Step, count: int, stops: bool = False) -> Path:
    """Return what a prompt is after 0, 1, ... steps on it; broken, it stops learning once it is right half of the time."""
    alone = Prompts.of(prompts(0.0, [rate]))
    theta, found, only = alone.theta[None], [], np.zeros(1, dtype=np.int64)
    for _ in range(count):
        state = alone.at(theta)
        success, deviation, square = state.success[0, 0], np.sqrt(state.variance[0, 0]), state.squares[0, 0]
        found.append((success, deviation, square, np.sqrt(square), square / deviation))
        if not (stops and success >= 0.5):
            theta = alone.step(theta, state, only, step)
    return Path(*np.array(found).T)


def cells(quick: bool) -> list[Cell]:
    """One cell for each setting."""
    common = {"prompts": N_PROMPTS, "horizons": list(QUICK_HORIZONS if quick else HORIZONS), "level": LEVEL}
    return [Cell({"setting": name, "arms": {arm: list(step) for arm, step in ARMS.items()}} | common) for name in SETTINGS]


def success_rates(setting: str) -> list[float]:
    """Return the different success rates at the start of a setting, equally many prompts of each."""
    return [LEARNT] if setting == "learnt" else list(dict.fromkeys(mixture(setting, N_PROMPTS)))


def counts_law(horizon: int, n: int) -> Array:
    """Return P(a prompt has been drawn k times in t updates), t = 0 to the horizon, k up to where 1e-16 is left."""
    from scipy.stats import binom  # slow to import, and seldom wanted

    most = int(binom.isf(1e-16, horizon, 1.0 / n)) + 1
    return np.asarray(binom.pmf(np.arange(most + 1), np.arange(horizon + 1)[:, None], 1.0 / n))


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, Any]]:
    """Sum the means along paths, of each arm and success rate at the start."""
    rates, horizons, n = success_rates(settings["setting"]), settings["horizons"], settings["prompts"]
    law = counts_law(horizons[-1], n)

    def walk(stops: bool) -> dict[str, dict[float, Path]]:
        own = {arm: {rate: own_path(rate, step, law.shape[1], stops) for rate in rates} for arm, step in ARMS.items()}
        return {arm: {rate: Path(*(law @ part for part in path)) for rate, path in some.items()} for arm, some in own.items()}

    found: list[dict[str, Any]] = []
    walked, stopped = walk(stops=False), walk(stops=True)
    for how, some in (("path", walked), ("broken", stopped)):
        for rate in rates if len(rates) == 1 else ():
            own = {arm: paths[rate] for arm, paths in some.items()}
            for horizon in horizons:
                bounds = quotients(own, horizon, n * (1.0 - rate))
                found += [
                    {"how": how, "horizon": horizon, "rate": rate, "statement": name, "estimate": float(value)}
                    for name, value in bounds.items()
                ]
    walked["stopped"] = stopped["divided"]
    mean = {arm: Path(*np.mean([list(path) for path in paths.values()], axis=0)) for arm, paths in walked.items()}
    for horizon in horizons:
        race = compare(mean, horizon).items()
        found += [{"how": "race", "horizon": horizon, "statement": name, "estimate": float(value)} for name, value in race]
    for arm, path in mean.items():
        there = path.success >= settings["level"]
        time = float(there.argmax()) if there.any() else float(horizons[-1])
        found.append({"how": "time", "horizon": horizons[-1], "statement": arm, "estimate": time})
    return found


def quotients(own: dict[str, Path], horizon: int, room: float) -> dict[str, float]:
    """Return left over right sides of the bounds on sums over the horizon, with room = n (1 - p_i(0))."""
    divided = Path(*(part[:horizon] for part in own["divided"]))
    plain, best, best_divided = own["plain"].square, own["plain, best"].square, own["divided, best"].weighted
    right = PRINTED * room * divided.deviation.mean()
    return {
        "N5/sum": plain[:horizon].sum() / (2.0 * room),
        "N5/minimum": horizon * plain[:horizon].min() / (2.0 * room),
        "N5/sum, sharp": best[:horizon].sum() * plain_gain_constant(SHARP_STEPS[0]) / room,
        "N6/printed": divided.square.sum() / right,
        "N6/corrected": divided.norm.mean() ** 2 * horizon / right,
        "N6/minimum": divided.norm.min() ** 2 * (1.0 / divided.deviation).sum() / (PRINTED * room),
        "N6/weighted": divided.weighted.sum() / (PRINTED * room),
        "N6/weighted, sharp": best_divided[:horizon].sum() * divided_gain_constant(SHARP_STEPS[1]) / room,
    }


def compare(mean: dict[str, Path], horizon: int) -> dict[str, float]:
    """Return the threshold of N7, and how far each arm is behind plain, in success and in the sum of squared gradients."""
    success = {arm: path.success[horizon] for arm, path in mean.items()}
    sums = {arm: path.square[:horizon].sum() for arm, path in mean.items()}
    behind = {f"success: {arm}": success["plain"] - success[arm] for arm in ("divided", "multiplied", "plain, best")}
    best = {f"success: {arm}": success["plain, best"] - success[arm] for arm in ("divided, best", "multiplied, best")}
    above = {f"sum: {arm}": sums[arm] - sums["plain"] for arm in ("divided", "stopped")}
    threshold = 8.0 / 3.0 * mean["divided"].deviation[:horizon].mean()
    return {"threshold": threshold, "success of plain": success["plain"]} | behind | best | above


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each bound, horizon and success rate at the start, one for each comparison, and the times to the level."""
    return [
        {"setting": settings["setting"], "rate": np.nan} | row | {"prediction": float("rate" in row)} | EXACT
        for row in results[0]
    ]


def claims(table: pd.DataFrame) -> list[Claim]:
    """The bounds where horizons are long; who is ahead at every horizon, on both sides of the threshold."""
    found = []
    sums = table[table["how"].isin(["path", "broken"]) & (table["horizon"] >= CHECKED)]
    for (setting, name, horizon), part in sums.groupby(["setting", "statement", "horizon"], sort=False):
        if setting == "hard" and name.endswith("minimum"):
            continue  # the start's own gradient is as small as the bound asks, whatever the update does
        at = part.set_index("how")["estimate"]
        found.append(claim(str(name), f"{setting} (T = {horizon})", *(exact(at[h], 1.0) for h in ("path", "broken"))))
    for (setting, horizon), part in table[table["how"] == "race"].groupby(["setting", "horizon"], sort=False):
        found += race_claims(f"{setting} (T = {horizon})", part.set_index("statement")["estimate"])
    return found


def race_claims(where: str, at: pd.Series) -> list[Claim]:
    """Return who is ahead in one setting; controls multiply where the update divides, stop learning, or lengthen plain steps."""
    threshold = average([at["threshold"]])
    facts = {"average of (8/3) sqrt V": threshold, "success of plain": average([at["success of plain"]])}

    def pair(own: str, broken: str) -> tuple[Evidence, Evidence]:
        return exact(at[own], 0.0), exact(at[broken], 0.0)

    ahead = pair("success: divided", "success: multiplied")
    compared = {"N7/always": ahead, "N7/best steps": pair("success: divided, best", "success: multiplied, best")}
    if threshold < 1.0:
        compared |= {"N7/printed": ahead, "N7/sum": pair("sum: divided", "sum: stopped")}
    else:
        compared["N7/converse"] = exact(-at["success: divided"], 0.0), exact(-at["success: plain, best"], 0.0)
    return [claim(name, where, *both, facts=facts) for name, both in compared.items()]


STUDY = unconverted(
    "path_sums",
    "N5, N6, N7: sums along training paths, and which update is ahead",
    cells,
    compute,
    rows,
    claims,
    (
        "N5/sum",
        "N5/minimum",
        "N5/sum, sharp",
        "N6/printed",
        "N6/corrected",
        "N6/minimum",
        "N6/weighted",
        "N6/weighted, sharp",
        "N7/printed",
        "N7/sum",
        "N7/converse",
        "N7/always",
        "N7/best steps",
    ),
)
