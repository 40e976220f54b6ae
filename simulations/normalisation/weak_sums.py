"""N8: sums of squared gradients along paths of prompts that interact weakly, against the bounds of Theorems 3.3 and 3.4."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from grpo_theory.arrays import Array, Integers
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.evidence.reading import evidence, exact, highest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.claims import claim, unconverted
from simulations.normalisation.ascent import Prompts
from simulations.normalisation.interaction import Interaction, constants, interaction, step_of
from simulations.normalisation.prompts import prompts

ALONE = {"one prompt, two answers": 2, "one prompt, four answers": 4}
"""n = 1, where Theorem 3.4 is Theorem 3.2: nothing interacts, and R1 = R2 = 1."""
SAME = "two prompts with the same features"
"""They share all that they learn, whichever is drawn: M = R1 = R2 = 1 along the one path that there is."""
ALIKE, CORRELATIONS = "one right answer, alike", (0.05, 0.3, 0.7)
UNLIKE = "one right answer, unlike"
"""For the plain update: divided, S is 45 or more at the start, and runs of these lengths would not learn."""
RATES = {ALIKE: (0.3, 0.3), UNLIKE: (0.5, 0.02)}
START = 0.5
HORIZONS, QUICK_HORIZONS = (1024, 4096), (1024,)
RUNS, QUICK_RUNS = 128, 16
GROWTH, ATTEMPTS = 1.1, 40
"""A constant that iterates exceed is replaced by one that is a tenth larger, until they exceed it no more: at most 45-fold."""
UPDATES = {"plain": ("N8/plain sum",), "divided": ("N8/divided sum", "N8/divided sum, weighted", "N8/divided sum, corrected")}


class Course(NamedTuple):
    """What runs add up along their iterates, each (R, n), and how strongly prompts interact at worst."""

    squares: Array
    norms: Array
    deviations: Array
    weighted: Array
    worst: Interaction


def course(problem: Prompts, drawn: Integers, update: str, constant: float, stops: bool = False) -> Course:
    """Run over the draws (T, R), with a step that is shortened by a constant; broken, prompts stop learning at success 1/2.

    Where the runs ask for a larger constant they end.
    """
    step, _ = step_of(f"N8/{update}", problem, constant)
    theta, worst = np.tile(problem.theta, (drawn.shape[1], 1)), Interaction(0.0, 0.0, 0.0)
    sums = np.zeros((4, drawn.shape[1], len(problem.right)))
    for now in drawn:
        state = problem.at(theta)
        worst = worst.joined(interaction(problem, state))
        squares, deviations = state.squares, np.sqrt(state.variance)
        sums += np.stack([squares, np.sqrt(squares), deviations, squares / deviations])
        learns = ~(stops & (np.take_along_axis(state.success, now[:, None], axis=1) >= 0.5))
        theta = np.where(learns, problem.step(theta, state, now, step), theta)
        if not stops and asked(update, worst) > constant:
            break  # whatever follows, the constant is too small
    squares, norms, deviations, weighted = sums
    return Course(squares, norms, deviations, weighted, worst)


def settled(problem: Prompts, drawn: Integers, update: str) -> tuple[Course, float]:
    """Return the runs and the theorem's constant with the M, R1 and R2 of their own iterates, which depend on the step.

    The least of a sequence that starts at what the start asks for, each a tenth larger than the one before.

    Raises
    ------
    RuntimeError
        If the assumption fails somewhere along the iterates, or they keep to no constant that is tried.
    """
    constant = asked(update, interaction(problem, problem.at(problem.theta[None])))
    for _ in range(ATTEMPTS):
        found = course(problem, drawn, update, constant)
        if asked(update, found.worst) <= constant:
            return found, constant
        constant *= GROWTH
    raise RuntimeError(f"no constant up to {constant:g} bounds the interaction along the iterates: {found.worst}")


def asked(update: str, found: Interaction) -> float:
    """Return the constant that a theorem asks for, as printed."""
    return constants(found)[f"N8/{update} gain"]


def quotients(found: Course, horizon: int, room: float) -> dict[str, tuple[Array, Array]]:
    """Return left over right sides of each bound for each prompt, and what each run adds, with room = n S (1 - p_i(0)) X^2.

    The second is the run's influence on the quotient, so that its spread over runs gives the standard error.
    """
    bound = 16.0 / 3.0 * room
    deviations = bound * found.deviations / horizon
    means = {name: part.mean(axis=0) for name, part in found._asdict().items() if name != "worst"}
    right = deviations.mean(axis=0)
    printed = means["squares"] / right
    corrected = means["norms"] ** 2 / horizon / right
    return {
        "N8/plain sum": (means["squares"] / (2.0 * room), found.squares / (2.0 * room)),
        "N8/divided sum": (printed, (found.squares - printed * deviations) / right),
        "N8/divided sum, weighted": (means["weighted"] / bound, found.weighted / bound),
        "N8/divided sum, corrected": (corrected, corrected * (2.0 * found.norms / means["norms"] - deviations / right)),
    }


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem and horizon; all satisfy the assumptions along their paths."""
    found = []
    for horizon in QUICK_HORIZONS if quick else HORIZONS:
        common = {"horizon": horizon, "correlation": np.nan, "runs": 1}
        for name, answers in ALONE.items():
            found.append({"setting": name, "rates": [START], "answers": answers} | common)
        found.append({"setting": SAME, "rates": [START, START], "answers": 4} | common)
        common["runs"] = QUICK_RUNS if quick else RUNS
        for name, rates in RATES.items():
            dials = CORRELATIONS if name == ALIKE and not quick else CORRELATIONS[1:2]
            found += [{"setting": name, "rates": list(rates), "answers": 4} | common | {"correlation": dial} for dial in dials]
    return [Cell(settings) for settings in found]


def problem_of(settings: Settings) -> Prompts:
    """Return the prompts of a cell."""
    rates, answers = settings["rates"], settings["answers"]
    if settings["setting"] != SAME:
        dial = settings["correlation"]
        return Prompts.of(prompts(0.0 if np.isnan(dial) else dial, rates, answers))
    one = Prompts.of(prompts(0.0, rates[:1], answers))
    n = len(rates)
    return Prompts(np.repeat(one.features, n, axis=0), np.repeat(one.right, n, axis=0), one.theta)


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, Any]]:
    """Return each bound's quotient for each prompt, of the right update and of one that stops."""
    problem, horizon, runs = problem_of(settings), settings["horizon"], settings["runs"]
    n = len(problem.right)
    drawn = np.asarray(np.random.default_rng(seed).integers(n, size=(horizon, runs)))
    start = problem.at(problem.theta[None]).success[0]
    found: list[dict[str, Any]] = []
    for update, names in UPDATES.items():
        if update == "divided" and settings["setting"] == UNLIKE:
            continue
        own, constant = settled(problem, drawn, update)
        facts = dict(zip(("M", "R1", "R2"), own.worst, strict=True)) | {"S": constant}
        room = n * constant * (1.0 - start) * float(problem.norms.max()) ** 2
        for how, some in (("path", own), ("broken", course(problem, drawn, update, constant, stops=True))):
            for name in names:
                values, added = quotients(some, horizon, room)[name]
                errors = added.std(axis=0, ddof=1) / np.sqrt(runs) if runs > 1 else np.zeros(n)
                found += [
                    {"how": how, "statement": name, "prompt": i, "estimate": float(values[i]), "standard_error": float(errors[i])}
                    | facts
                    for i in range(n)
                ]
    return found


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each bound and prompt."""
    common = {name: settings[name] for name in ("setting", "correlation", "horizon")} | EXACT
    if settings["runs"] > 1:
        common["replications"] = settings["runs"]
    return [common | row | {"prediction": 1.0} for row in results[0]]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Each bound by the prompt that is worst."""
    found = []
    for (statement, setting, correlation, horizon), part in table.groupby(
        ["statement", "setting", "correlation", "horizon"], sort=False, dropna=False
    ):
        where = setting if np.isnan(correlation) else f"{setting} (correlation {correlation:g})"
        own, broken = part[part["how"] == "path"], part[part["how"] == "broken"]
        facts = {name: own[name].iloc[0] for name in ("M", "R1", "R2", "S")}
        both = (_worst(some) for some in (own, broken))
        found.append(claim(str(statement), f"{where}, T = {horizon}", *both, facts=facts))
    return found


def _worst(some: pd.DataFrame) -> Evidence:
    row = some.loc[highest(some["estimate"])]
    if row["replications"] == 0:
        return exact(row["estimate"], row["prediction"])
    return evidence(row, comparisons=len(some))


STUDY = unconverted(
    "weak_sums",
    "N8: sums along paths of prompts that share features",
    cells,
    compute,
    rows,
    claims,
    tuple(name for names in UPDATES.values() for name in names),
)
