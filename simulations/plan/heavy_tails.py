"""Coverage of the planner's limits on pilots of heavy-tailed gradient lengths, and how often it warns of such pilots."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Share, Statement
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.intervals.components import PromptTerms
from grpo_theory.intervals.heavy_tails import student_coverage
from grpo_theory.plan.advice import SHORT
from grpo_theory.plan.error_constants import pilot_terms
from grpo_theory.plan.group_size import GroupSizeChoice, choose, choose_group_size
from simulations.plan.heavy_pilots import LAWS, draw_pilot, exact_law
from simulations.plan.pilot_problems import LIMITS
from simulations.statements import stated

HELD = {name: stated(f"plan/tails/{name}") for name in ("c1", "c2", "c3", "error", "loss")}
"""What limits are promised of pilots whose gradients have heavy-tailed lengths."""
MISSED, FALSE_ALARM = stated("plan/tails/missed", "plan/tails/false alarm")
STATEMENTS = (*HELD.values(), MISSED, FALSE_ALARM)

LEVEL = 0.95
MARGIN = 0.02
"""As of the planner's other limits from gradients: 93 of 100 cases instead of 95 misleads nobody."""
ALARMS = 0.1
"""A reader puts up with one wrong warning in ten: a table warned of for no reason, or one that is not warned of."""
ASKED = 16
HEAVY, LIGHT, SIGNAL = "lognormal 0.7", "equal", "lognormal 0.7, signal"
DESIGN = (
    *((name, 30, True) for name in LAWS),
    ("lognormal 0.7", 100, False),
    ("lognormal 0.7", 400, True),
    ("lognormal 0.7, signal", 100, True),
)
"""Laws of lengths, prompts, and whether the numbers of responses differ."""
POINTS = (
    (HEAVY, 30, True, 4),
    (HEAVY, 30, False, 5),
    (HEAVY, 100, True, 2),
    (SIGNAL, 30, True, 5),
    (LIGHT, 30, True, 1),
    (LIGHT, 100, True, 1),
)
"""Where the claims are decided, and in how many chunks: more where coverage is expected nearer to what is promised."""
PILOTS, POINT_PILOTS, QUICK_PILOTS = 200, 1000, 20
MISSES = 1.0 - LEVEL + MARGIN
PROMISED: dict[tuple[str, str], tuple[Statement, float]] = {
    **{(HEAVY, name): (HELD[name], MISSES) for name in ("c1", "c2", "c3", "error")},
    (SIGNAL, "loss"): (HELD["loss"], MISSES),
    (HEAVY, "warned"): (MISSED, ALARMS),
    (LIGHT, "warned"): (FALSE_ALARM, ALARMS),
}
"""What is promised at the points of a law, and how often it may fail.

With common lengths the limits are those of absolute errors, else those of ratios of errors.
"""
QUANTITIES = ("c1", "c2", "c3", "error", "loss", "best size", "risk", "warned")


def cells(quick: bool) -> list[Cell]:
    """The design, and the points with many pilots."""
    design = [(("tails", *one), QUICK_PILOTS if quick else PILOTS, 1) for one in DESIGN]
    points = [(("tails, point", *one), QUICK_PILOTS if quick else POINT_PILOTS, 1 if quick else n) for *one, n in POINTS]
    keys = ("part", "law", "prompts", "ragged")
    return [Cell(dict(zip(keys, key, strict=True)) | {"pilots": pilots}, chunks) for key, pilots, chunks in [*design, *points]]


def compute(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, dict[str, float]]:
    """Draw pilots, and count how often the planner's limits hold the truth, and how often Student's do.

    For warnings, count how often the planner warns. Count this also for the same pilots with lengths removed, or added where all
    are equal.
    """
    name, prompts = settings["law"], settings["prompts"]
    counts = {quantity: {"covered": 0.0, "plugged_in": 0.0} for quantity in QUANTITIES}
    for _ in range(settings["pilots"]):
        rollouts, lengths = draw_pilot(name, prompts, settings["ragged"], rng)
        planned = choose_group_size(rollouts, LIMITS, LEVEL)
        plain = choose(planned.constants.law, planned.constants.covariance, prompts, LIMITS, LEVEL)
        for arm, choice in (("covered", planned), ("plugged_in", plain)):
            for quantity, held in judge(choice, name).items():
                counts[quantity][arm] += float(held)
        factors = LAWS[HEAVY].draw(rng, prompts) if name == LIGHT else 1.0 / lengths
        other = scaled(pilot_terms(rollouts), factors).influences()
        counts["warned"]["covered"] += float(warned(planned.constants.student_coverage))
        counts["warned"]["plugged_in"] += float(warned(float(student_coverage(other, LEVEL).min())))
    return counts


def scaled(terms: PromptTerms, factors: Array) -> PromptTerms:
    """Return what prompts would say were the scores of each multiplied by a factor, (B,): all but gradients have its square."""
    squares = factors**2
    return PromptTerms(terms.gradients * factors[:, None], terms.power * squares, terms.c2 * squares, terms.c3 * squares)


def warned(coverage: float) -> bool:
    """Return whether the planner warns of heavy tails, where Student's limits would hold so often."""
    return coverage < LEVEL - SHORT


@cache
def exact_choice(name: str) -> GroupSizeChoice:
    """Return the exact error at every allowed group size."""
    return choose(exact_law(name), np.zeros((3, 3)), pilot=2, limits=LIMITS)


def judge(choice: GroupSizeChoice, name: str) -> dict[str, bool]:
    """Return which limits hold: of the constants, of error and loss at group size 16, of the recommendation's loss; the set."""
    exact, law = exact_choice(name), exact_law(name)
    at = exact.at(ASKED)
    constants = np.array([law.c1, law.c2, law.c3])
    held = (choice.constants.low <= constants) & (constants <= choice.constants.high)
    return {
        **{f"c{k + 1}": bool(held[k]) for k in range(3)},
        "error": bool(choice.mse.low[at] <= exact.mse.estimate[at] <= choice.mse.high[at]),
        "loss": bool(choice.loss.low[at] <= exact.loss.estimate[at] <= choice.loss.high[at]),
        "best size": bool(choice.candidates[exact.best]),
        "risk": bool(exact.loss.estimate[choice.best] <= choice.risk),
    }


def rows(settings: Settings, results: list[Any]) -> Iterator[dict[str, Any]]:
    """One row for each quantity: the share of pilots in which the planner's limits hold, or in which it warns; and Student's."""
    common = {key: settings[key] for key in ("part", "law", "prompts", "pilots")}
    common |= {"size": 0, "responses": "4 to 64"} if settings["ragged"] else {"size": 8, "responses": "8"}
    for quantity in QUANTITIES:
        prediction = np.nan if quantity == "warned" else LEVEL
        yield common | {"quantity": quantity, "prediction": prediction} | shares(results, quantity, settings["pilots"])


def shares(results: Sequence[Any], quantity: str, pilots: int) -> dict[str, float]:
    """Return as columns of a row in what share of pilots limits hold, and in what share those of the control do."""
    tries = pilots * len(results)
    share, plain = (sum(chunk[quantity][arm] for chunk in results) / tries for arm in ("covered", "plugged_in"))
    error = float(np.sqrt(share * (1.0 - share) / tries))
    return {"plugged_in": plain, "estimate": share, "standard_error": error, "replications": tries}


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Read off, at the points, that limits hold as often as promised, where Student's do not, and that warnings are right."""
    for row in table[table["part"] == "tails, point"].to_dict("records"):
        statement, most = PROMISED.get((row["law"], row["quantity"]), (None, 0.0))
        if statement is not None:
            fails = [row[name] if statement is FALSE_ALARM else 1.0 - row[name] for name in ("estimate", "plugged_in")]
            own, control = (Share(share, most, replications=row["replications"]) for share in fails)
            yield statement.claim(f"{row['law']}, {row['prompts']} prompts of {row['responses']}", own, control)
