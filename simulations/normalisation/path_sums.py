"""N5, N6, N7: sums along training paths, and which update is ahead, for orthogonal prompts, exact.

Sums of squared gradients are compared with their bounds, and mean success with division with that without. Prompts that are
orthogonal do not move each other. So a prompt's state after t updates is that after k of its own, where k is binomial (t, 1/n).
Means over paths are exact sums. In the controls a prompt stops learning once it is right half of the time, steps multiply by the
deviation, or plain steps are longer.
"""

from collections.abc import Iterator
from typing import Any

from grpo_theory.arrays import Array
from grpo_theory.evidence import PARTS, Comparison, Statement
from grpo_theory.evidence.reading import average
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.theory import divided_gain_constant, plain_gain_constant
from simulations.normalisation.ascent import SHARP_STEPS, Step
from simulations.normalisation.assumptions import ORTHOGONAL
from simulations.normalisation.orthogonal_paths import Path, counts_law, mean_over_rates, own_path
from simulations.normalisation.prompts import MIXTURES, mixture
from simulations.sources import CORRECTION, NORMALIZATION, OURS, derived

PLAIN_SUM = Statement(
    "N5/sum",
    f"{NORMALIZATION}, Theorem 3.1",
    "sum_t E||grad J_i||^2 over 2 n (1 - p_i(0)) X^2 is at most 1",
    "upper bound",
    ORTHOGONAL,
    formula=r"$\sum_tE\|\nabla J_i\|^2\le2n\,(1-p_i(0))\,X^2$.",
)
PLAIN_MINIMUM = Statement(
    "N5/minimum",
    f"{NORMALIZATION}, Theorem 3.1",
    "T min_{t<T} E||grad J_i||^2 over 2 n (1 - p_i(0)) X^2 is at most 1",
    "upper bound",
    ORTHOGONAL,
    formula=r"$T\min_{t<T}E\|\nabla J_i\|^2\le2n\,(1-p_i(0))\,X^2$.",
)
SHARP_PLAIN_SUM = Statement(
    "N5/sum, sharp",
    derived(31),
    "eta = 3 sqrt 3/X^2: sum_t E||grad J_i||^2 over (2/(3 sqrt 3)) n (1 - p_i(0)) X^2 is at most 1",
    "upper bound",
    ORTHOGONAL,
    formula=r"With $\eta=3\sqrt3/X^2$, $\sum_tE\|\nabla J_i\|^2\le\tfrac2{3\sqrt3}\,n\,(1-p_i(0))\,X^2$.",
    whose=OURS,
)
DIVIDED_SUM = Statement(
    "N6/printed",
    f"{NORMALIZATION}, Theorem 3.2",
    "sum_{t<T} E||grad J_i||^2 over 2 n (1 - p_i(0)) X^2 (8/(3T)) sum_t E sqrt(V_i) is at most 1",
    "upper bound",
    ORTHOGONAL,
    formula=r"The sum as printed, with $C_t=E\sqrt{V_i}$.",
)
DIVIDED_NORMS = Statement(
    "N6/corrected",
    derived(31),
    "[(1/T) sum_{t<T} E||grad J_i||]^2 over 2 n (1 - p_i(0)) X^2 (8/(3T)) (1/T) sum_t E sqrt(V_i) is at most 1",
    "upper bound",
    ORTHOGONAL,
    formula=r"$$\left[\frac1T\sum_{t<T}E\|\nabla "
    r"J_i\|\right]^2\le2n\,(1-p_i(0))\,X^2\cdot\frac8{3T}\cdot\frac1T\sum_tE\sqrt{V_i}$$",
    whose=CORRECTION,
)
DIVIDED_MINIMUM = Statement(
    "N6/minimum",
    derived(31),
    "min_{t<T} [E||grad J_i||]^2 sum_t 1/E sqrt(V_i) over (16/3) n (1 - p_i(0)) X^2 is at most 1",
    "upper bound",
    ORTHOGONAL,
    formula=r"$$\min_{t<T}\left[E\|\nabla J_i\|\right]^2\sum_t\frac1{E\sqrt{V_i}}\le\tfrac{16}3\,n\,(1-p_i(0))\,X^2$$",
    whose=CORRECTION,
)
WEIGHTED_SUM = Statement(
    "N6/weighted",
    derived(31),
    "sum_t E[||grad J_i||^2/sqrt(V_i)] over (16/3) n (1 - p_i(0)) X^2 is at most 1",
    "upper bound",
    ORTHOGONAL,
    formula=r"$$\sum_tE\!\left[\frac{\|\nabla J_i\|^2}{\sqrt{V_i}}\right]\le\tfrac{16}3\,n\,(1-p_i(0))\,X^2$$",
    whose=CORRECTION,
)
SHARP_WEIGHTED_SUM = Statement(
    "N6/weighted, sharp",
    derived(31),
    "eta = 1.7/X^2: sum_t E[||grad J_i||^2/sqrt(V_i)] over n (1 - p_i(0)) X^2/0.889 is at most 1",
    "upper bound",
    ORTHOGONAL,
    formula=r"With $\eta=1.7/X^2$, $\sum_tE\left[\|\nabla J_i\|^2/\sqrt{V_i}\right]\le n\,(1-p_i(0))\,X^2/0.889$.",
    whose=OURS,
)
AHEAD = Statement(
    "N7",
    NORMALIZATION,
    "GRPO's rate is strictly better when the average over prompts and iterations of (8/3) sqrt(V) is below 1",
    PARTS,
    ORTHOGONAL,
    formula=r"GRPO's rate is strictly better when the average over prompts and iterations of $\tfrac83\sqrt V$ is below $1$.",
)
AHEAD_BELOW = Statement(
    "N7/printed",
    NORMALIZATION,
    "where the average of (8/3) sqrt(V) is below 1, mean success after T updates is higher with division, printed "
    "steps. N7/converse is the other side of the threshold",
    "ordering",
    ORTHOGONAL,
    formula=r"Where the average of $\tfrac83\sqrt V$ is below $1$, mean success after $T$ updates is higher with division, "
    r"printed steps.",
)
SUM_BELOW = Statement(
    "N7/sum",
    NORMALIZATION,
    "where it is below 1, the sum of squared gradients over T updates is smaller with division, printed steps",
    "ordering",
    ORTHOGONAL,
)
BEHIND_ABOVE = Statement(
    "N7/converse",
    f"question beside {NORMALIZATION}",
    "where it is not below 1, the plain update's mean success after T updates is higher, printed steps",
    "ordering",
    ORTHOGONAL,
    whose=OURS,
)
ALWAYS_AHEAD = Statement(
    "N7/always",
    derived(31),
    "tabular prompts, wrong answers equally likely: the divided update's success is higher at every T, printed steps",
    "ordering",
    ORTHOGONAL,
    whose=OURS,
)
AHEAD_AT_BEST_STEPS = Statement(
    "N7/best steps",
    f"question beside {NORMALIZATION}",
    "and at the steps of the best guarantees, 3 sqrt 3/X^2 and 1.7/X^2, the divided update's success is higher too",
    "ordering",
    ORTHOGONAL,
    formula=r"At the steps of the best guarantees, $3\sqrt3/X^2$ and $1.7/X^2$, the divided update's success is higher too.",
    whose=OURS,
)

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
