"""N8: sums along paths of prompts that share features.

Sums of squared gradients are compared with the bounds of Theorems 3.3 and 3.4. The paths are of prompts that interact weakly, and
the worst prompt is taken. In the control prompts stop learning at success 1/2.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from grpo_theory.arrays import Array, Integers
from grpo_theory.evidence import Claim, Statement
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.normalisation.ascent import Prompts
from simulations.normalisation.interaction import FACTS, Interaction, constants, interaction, step_of
from simulations.normalisation.prompts import label, prompts
from simulations.statements import stated
from simulations.worst_cases import worst_evidence

PLAIN_SUM, DIVIDED_SUM, DIVIDED_NORMS = stated("N8/plain sum", "N8/divided sum", "N8/divided sum, corrected")
WEIGHTED_SUM = stated("N8/divided sum, weighted")

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
UPDATES = {"plain": (PLAIN_SUM,), "divided": (DIVIDED_SUM, WEIGHTED_SUM, DIVIDED_NORMS)}


class Course(NamedTuple):
    """What runs add up along their iterates, each (R, n), and how strongly prompts interact at worst."""

    squares: Array
    norms: Array
    deviations: Array
    weighted: Array
    worst: Interaction


def course(problem: Prompts, drawn: Integers, update: str, constant: float, stops: bool = False) -> Course:
    """Run over the draws (T, R), with a step shortened by a constant; in the control prompts stop learning at success 1/2.

    Where the runs ask for a larger constant they end.
    """
    step, _ = step_of(update, problem, constant)
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
        runs = course(problem, drawn, update, constant)
        if asked(update, runs.worst) <= constant:
            return runs, constant
        constant *= GROWTH
    raise RuntimeError(f"no constant up to {constant:g} bounds the interaction along the iterates: {runs.worst}")


def asked(update: str, worst: Interaction) -> float:
    """Return the constant that a theorem asks for, as printed."""
    return constants(worst)[update]


def quotients(runs: Course, horizon: int, scale: float) -> dict[Statement, tuple[Array, Array]]:
    """Return left over right sides of each bound for each prompt, and what each run adds, with scale = n S (1 - p_i(0)) X^2.

    The second is the run's influence on the quotient, so that its spread over runs gives the standard error.
    """
    bound = 16.0 / 3.0 * scale
    deviations = bound * runs.deviations / horizon
    means = {name: part.mean(axis=0) for name, part in runs._asdict().items() if name != "worst"}
    right = deviations.mean(axis=0)
    printed = means["squares"] / right
    corrected = means["norms"] ** 2 / horizon / right
    return {
        PLAIN_SUM: (means["squares"] / (2.0 * scale), runs.squares / (2.0 * scale)),
        DIVIDED_SUM: (printed, (runs.squares - printed * deviations) / right),
        WEIGHTED_SUM: (means["weighted"] / bound, runs.weighted / bound),
        DIVIDED_NORMS: (corrected, corrected * (2.0 * runs.norms / means["norms"] - deviations / right)),
    }


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem and horizon; all satisfy the assumptions along their paths."""
    settings: list[dict[str, Any]] = []
    for horizon in QUICK_HORIZONS if quick else HORIZONS:
        common = {"horizon": horizon, "correlation": np.nan, "runs": 1}
        for name, answers in ALONE.items():
            settings.append({"setting": name, "rates": [START], "answers": answers} | common)
        settings.append({"setting": SAME, "rates": [START, START], "answers": 4} | common)
        common["runs"] = QUICK_RUNS if quick else RUNS
        for name, rates in RATES.items():
            dials = CORRELATIONS if name == ALIKE and not quick else CORRELATIONS[1:2]
            settings += [{"setting": name, "rates": list(rates), "answers": 4} | common | {"correlation": dial} for dial in dials]
    return [Cell(one) for one in settings]


def problem_of(settings: Settings) -> Prompts:
    """Return the prompts of a cell."""
    rates, answers = settings["rates"], settings["answers"]
    if settings["setting"] != SAME:
        dial = settings["correlation"]
        return Prompts.of(prompts(0.0 if np.isnan(dial) else dial, rates, answers))
    one = Prompts.of(prompts(0.0, rates[:1], answers))
    n = len(rates)
    return Prompts(np.repeat(one.features, n, axis=0), np.repeat(one.right, n, axis=0), one.theta)


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Return each bound's quotient for each prompt, of the right update and of one that stops."""
    problem, horizon, runs = problem_of(settings), settings["horizon"], settings["runs"]
    n = len(problem.right)
    drawn = np.asarray(rng.integers(n, size=(horizon, runs)))
    start = problem.at(problem.theta[None]).success[0]
    table: Rows = []
    for update, statements in UPDATES.items():
        if update == "divided" and settings["setting"] == UNLIKE:
            continue
        own, constant = settled(problem, drawn, update)
        facts = dict(zip(FACTS, own.worst, strict=True)) | {"S": constant}
        scale = n * constant * (1.0 - start) * float(problem.norms.max()) ** 2
        for how, sums in (("path", own), ("broken", course(problem, drawn, update, constant, stops=True))):
            bounds = quotients(sums, horizon, scale)
            for statement in statements:
                values, added = bounds[statement]
                errors = added.std(axis=0, ddof=1) / np.sqrt(runs) if runs > 1 else np.zeros(n)
                at = {"how": how, "statement": statement.id} | facts
                table += [at | {"prompt": i, "estimate": float(values[i]), "standard_error": float(errors[i])} for i in range(n)]
    return table


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each bound and prompt."""
    common = {name: settings[name] for name in ("setting", "correlation", "horizon")} | {"prediction": 1.0, **EXACT}
    if settings["runs"] > 1:
        common["replications"] = settings["runs"]
    return [common | row for row in results[0]]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Each bound by the prompt that is worst."""
    stated = {one.id: one for statements in UPDATES.values() for one in statements}
    keys = ["statement", "setting", "correlation", "horizon"]
    for (name, setting, dial, horizon), part in table.groupby(keys, sort=False, dropna=False):
        own, broken = part[part["how"] == "path"], part[part["how"] == "broken"]
        facts = {fact: own[fact].iloc[0] for fact in (*FACTS, "S")}
        yield stated[name].claim(f"{label(setting, dial)}, T = {horizon}", worst_evidence(own), worst_evidence(broken), facts)
