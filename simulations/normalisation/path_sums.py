"""N5, N6, N7: sums along training paths, and which update is ahead, for orthogonal prompts, exact.

Sums of squared gradients are compared with their bounds, and mean success with division with that without. Prompts that are
orthogonal do not move each other. So a prompt's state after t updates is that after k of its own, where k is binomial (t, 1/n).
Means over paths are exact sums. In the controls a prompt stops learning once it is right half of the time, steps multiply by the
deviation, or plain steps are longer.
"""

from collections.abc import Iterator
from typing import Any

from grpo_theory.arrays import Array
from grpo_theory.evidence import Comparison, Statement
from grpo_theory.evidence.reading import average
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.theory import divided_gain_constant, plain_gain_constant
from simulations.normalisation.ascent import SHARP_STEPS, Step
from simulations.normalisation.orthogonal_paths import Path, counts_law, mean_over_rates, own_path
from simulations.normalisation.prompts import MIXTURES, mixture
from simulations.statements import stated

PLAIN_SUM, PLAIN_MINIMUM, SHARP_PLAIN_SUM, DIVIDED_SUM = stated("N5/sum", "N5/minimum", "N5/sum, sharp", "N6/printed")
DIVIDED_NORMS, DIVIDED_MINIMUM, WEIGHTED_SUM = stated("N6/corrected", "N6/minimum", "N6/weighted")
SHARP_WEIGHTED_SUM, AHEAD, AHEAD_BELOW, SUM_BELOW = stated("N6/weighted, sharp", "N7", "N7/printed", "N7/sum")
BEHIND_ABOVE, ALWAYS_AHEAD, AHEAD_AT_BEST_STEPS = stated("N7/converse", "N7/always", "N7/best steps")

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
"""The printed steps (X = 1), those of the best guarantees, and the control's, multiplied by the standard deviation instead."""


def success_rates(setting: str) -> list[float]:
    """Return the different success rates at the start of a setting, equally many prompts of each."""
    return [LEARNT] if setting == "learnt" else list(dict.fromkeys(mixture(setting, N_PROMPTS)))


def walk(rates: list[float], law: Array, stops: bool) -> dict[str, dict[float, Path]]:
    """Return the means along paths of each arm and success rate at the start, by the law of how often a prompt is drawn."""
    return {
        arm: {rate: Path(*(law @ part for part in own_path(rate, step, law.shape[1], stops))) for rate in rates}
        for arm, step in ARMS.items()
    }


def quotients(own: dict[str, Path], horizon: int, scale: float) -> dict[Statement, float]:
    """Return left over right sides of the bounds on sums over the horizon, with scale = n (1 - p_i(0))."""
    divided = Path(*(part[:horizon] for part in own["divided"]))
    plain, best, best_divided = own["plain"].square, own["plain, best"].square, own["divided, best"].weighted
    right = PRINTED * scale * divided.deviation.mean()
    return {
        PLAIN_SUM: plain[:horizon].sum() / (2.0 * scale),
        PLAIN_MINIMUM: horizon * plain[:horizon].min() / (2.0 * scale),
        SHARP_PLAIN_SUM: best[:horizon].sum() * plain_gain_constant(SHARP_STEPS[0]) / scale,
        DIVIDED_SUM: divided.square.sum() / right,
        DIVIDED_NORMS: divided.norm.mean() ** 2 * horizon / right,
        DIVIDED_MINIMUM: divided.norm.min() ** 2 * (1.0 / divided.deviation).sum() / (PRINTED * scale),
        WEIGHTED_SUM: divided.weighted.sum() / (PRINTED * scale),
        SHARP_WEIGHTED_SUM: best_divided[:horizon].sum() * divided_gain_constant(SHARP_STEPS[1]) / scale,
    }


def ahead(where: str, mean: dict[str, Path], stopped: Path, horizon: int) -> Iterator[Comparison]:
    """Yield who is ahead after an update, in success and in the sum of squared gradients, on either side of the threshold."""
    success = {arm: path.success[horizon] for arm, path in mean.items()}
    behind = {arm: success["plain"] - value for arm, value in success.items()}
    best = {arm: success["plain, best"] - success[f"{arm}, best"] for arm in ("divided", "multiplied")}
    sums = [path.square[:horizon].sum() for path in (mean["plain"], mean["divided"], stopped)]
    threshold = average([8.0 / 3.0 * mean["divided"].deviation[:horizon].mean()])
    facts = {"average of (8/3) sqrt V": threshold, "success of plain": average([success["plain"]])}
    pairs = {ALWAYS_AHEAD: (behind["divided"], behind["multiplied"]), AHEAD_AT_BEST_STEPS: (best["divided"], best["multiplied"])}
    if threshold < 1.0:
        pairs |= {AHEAD_BELOW: pairs[ALWAYS_AHEAD], SUM_BELOW: (sums[1] - sums[0], sums[2] - sums[0])}
    else:
        pairs[BEHIND_ABOVE] = -behind["divided"], -behind["plain, best"]
    for statement, (own, broken) in pairs.items():
        yield statement.compare(where, own, 0.0, broken=broken, facts=facts)


def cells(quick: bool) -> list[Cell]:
    """One cell for each setting."""
    return [Cell({"setting": name, "horizons": list(QUICK_HORIZONS if quick else HORIZONS)}) for name in SETTINGS]


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield the bounds where horizons are long, who is ahead at every horizon, and when each arm is at the level."""
    setting, horizons = settings["setting"], settings["horizons"]
    rates, law = success_rates(setting), counts_law(horizons[-1], N_PROMPTS)
    walked, stopped = (walk(rates, law, stops) for stops in (False, True))
    for horizon in horizons if len(rates) == 1 else ():
        if horizon < CHECKED:
            continue
        scale = N_PROMPTS * (1.0 - rates[0])
        own, broken = (
            quotients({arm: paths[rates[0]] for arm, paths in arms.items()}, horizon, scale) for arms in (walked, stopped)
        )
        for statement, quotient in own.items():
            # The start's own gradient of hard prompts is as small as a minimum must be, whatever the update does.
            if setting != "hard" or statement not in (PLAIN_MINIMUM, DIVIDED_MINIMUM):
                yield statement.compare(f"{setting} (T = {horizon})", quotient, 1.0, broken=broken[statement])
    mean = {arm: mean_over_rates(paths) for arm, paths in walked.items()}
    for horizon in horizons:
        yield from ahead(f"{setting} (T = {horizon})", mean, mean_over_rates(stopped["divided"]), horizon)
    for arm, path in mean.items():
        there = path.success >= LEVEL
        yield {"setting": setting, "arm": arm, "estimate": float(there.argmax()) if there.any() else float(horizons[-1])}
