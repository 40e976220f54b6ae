"""The best group size at a budget, predicted from the start of a run: the weight of the prompts met so far over the noise.

The law (docs/derivations.md, section 38) is judged on worlds other than those it was made on. The measure is the success that its
choice loses against the best size there. In the control the law knows of no noise.

One choice was made after trials on other worlds: a prompt counts as met where 8 successes are expected. There 1 and 2 lost more,
and 4 to 16 lost the same. On five worlds that are judged no more, 4 lost more than 8.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Evidence, Statement
from grpo_theory.evidence.reading import highest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory.finite_group import finite_group_objective
from simulations.runs.sized import WORLDS, Ends, best_steps, judged, summaries
from simulations.runs.worlds import WORLDS as WHOLE_RUNS
from simulations.seeds import child_seed, seed_of
from simulations.sources import OURS, derived

LAW = Statement(
    "growth/law",
    derived(38),
    "the size is argmax of w_G(p)/sqrt(v_G), p = 8M/C within the range of success at the start, v_G the noise there. On average "
    "over the budgets it loses at most 0.02 of success against the best size",
    "upper bound",
    whose=OURS,
)
AGAINST = Statement(
    "growth/law, against one size",
    derived(38),
    "on average over the budgets the law's size loses less success than groups of 4 at every budget",
    "ordering",
    whose=OURS,
)
USUAL = 4
"""The best single size of the ten worlds on which the law was made: what a law must beat to be of use."""
TOLD = (("few prompts", "rloo"), ("few prompts", "grpo"), ("shared", "grpo"), ("easy", "grpo"), ("hard", "grpo"))
"""Worlds of the study `frontier`, and estimators, in which the law says its size and the frontier's runs show the best one."""
TOLD_SIZES, TOLD_BUDGETS = tuple(2**k for k in range(1, 9)), tuple(2**k for k in range(10, 19))
SIZES = (2, 4, 8, 16, 32, 64)
BUDGETS = (512, 2048, 8192)
MORE = (4, 2, 1)
"""So many times as many runs at each budget: they cost less, and their ends spread more."""
WHERE = (
    ("rarer", "grpo"),
    ("roomy", "grpo"),
    ("more prompts", "grpo"),
    ("competing", "grpo"),
    ("misled", "grpo"),
    ("rarer", "rloo"),
)
MET = 8
"""A prompt counts as met when this many successes are expected of its share C/M of the responses."""
RUNS, QUICK_RUNS = 384, 64
MARGIN = 0.02
"""Two points of success: what the growth of the best size was worth at most in the trials."""


def cells(quick: bool) -> list[Cell]:
    """One for each world and estimator in which it is judged; and one without runs for each in which others judge."""
    runs = QUICK_RUNS if quick else RUNS
    listed = [*((place, runs) for place in WHERE), *((place, 0) for place in TOLD)]
    return [Cell({"world": world, "estimator": estimator, "runs": count}) for (world, estimator), count in listed]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Return the rows of all group sizes and budgets, with what the law says of them; of a cell without runs, the law's sizes."""
    if not settings["runs"]:
        return _told(WHOLE_RUNS[settings["world"]].problem(), settings["estimator"])
    problem, estimator = WORLDS[settings["world"]].problem(), settings["estimator"]
    noise = np.array([noise_at_start(problem, estimator, size) for size in SIZES])
    weights = np.array([frontier_weights(problem, estimator, size) for size in SIZES])
    told: list[dict[str, float]] = []
    arms: list[Ends] = []
    for size, at_budgets, noise_of_size in zip(SIZES, weights, noise, strict=True):
        seeds = child_seed(seed_of(rng), size)
        steps = best_steps(problem, estimator, size, BUDGETS, child_seed(seeds, 0))
        arms += judged(problem, estimator, size, BUDGETS, steps, [more * settings["runs"] for more in MORE], child_seed(seeds, 1))
        told += [{"weight": float(weight), "merit": float(weight / np.sqrt(noise_of_size))} for weight in at_budgets]
    return [one | row for one, row in zip(told, summaries(arms), strict=True)]


def _told(problem: gt.Problem, estimator: str) -> Rows:
    """Return a row for each budget of the frontier, with the law's size."""
    said = law_sizes(problem, estimator, TOLD_SIZES, TOLD_BUDGETS)
    told = {"weight": np.nan, "merit": np.nan, "step": np.nan}
    return [
        told | {"budget": budget, "group_size": size, "estimate": size, **EXACT}
        for budget, size in zip(TOLD_BUDGETS, said, strict=True)
    ]


def noise_at_start(problem: gt.Problem, estimator: str, group_size: int) -> float:
    """Return v_G: N times the trace of the covariance of an update's estimate from N responses, at the start; N drops out."""
    return group_size * gt.gradient_law(problem, problem.theta, estimator, batch_size=1, group_size=group_size).trace


def frontier_weights(problem: gt.Problem, estimator: str, group_size: int, budgets: Sequence[int] = BUDGETS) -> Array:
    """Return w_G at the rarest prompts that each budget has met, shape (C,)."""
    rates = gt.moments(problem, problem.theta).value
    met = np.clip(MET * rates.size / np.array(budgets), rates.min(), rates.max())
    # Rounded, so that weights which are equal are ties: there the broken law takes the largest group, as elsewhere.
    return finite_group_objective(estimator, group_size).slope(met).round(9)


def law_sizes(problem: gt.Problem, estimator: str, sizes: Sequence[int], budgets: Sequence[int]) -> list[int]:
    """Return the size that the law says is best at each budget."""
    merits = [
        frontier_weights(problem, estimator, size, budgets) / np.sqrt(noise_at_start(problem, estimator, size)) for size in sizes
    ]
    return [sizes[k] for k in np.argmax(merits, axis=0)]


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Return the rows of the table."""
    quantity = "success" if settings["runs"] else "size that the law says"
    common = {"world": settings["world"], "estimator": settings["estimator"], "quantity": quantity}
    return [common | {"prediction": np.nan} | row for row in results[0]]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge what is lost by the law's choice, and by that of the largest weight."""
    judged_here = table.query("quantity == 'success'")
    for (world, estimator), own in judged_here.groupby(["world", "estimator"], sort=False):
        budgets = [at.set_index("group_size") for _, at in own.groupby("budget")]
        facts: dict[str, float] = {}
        for at in budgets:
            budget = at["budget"].iloc[0]
            facts[f"best G at {budget}"], facts[f"the law's at {budget}"] = (
                float(highest(at[by])) for by in ("estimate", "merit")
            )
        for size in SIZES:
            facts[f"loss of G = {size}"] = float(np.mean([at["estimate"].max() - at.loc[size, "estimate"] for at in budgets]))
        own_loss, broken = _loss(budgets, "merit"), _loss(budgets, "weight")
        yield LAW.claim(f"{world} ({estimator})", own_loss, broken, facts=facts)
        if estimator == "grpo":  # undivided, the law says one size itself
            ahead, behind = (_less_than_usual(budgets, by) for by in ("merit", "weight"))
            yield AGAINST.claim(f"{world} ({estimator})", ahead, behind)


def _loss(budgets: list[pd.DataFrame], by: str) -> Evidence:
    """Return the mean over budgets of the success lost by a choice; the best size is the best of the same runs."""
    losses, variances = [], []
    for at in budgets:
        best, chosen = at.loc[highest(at["estimate"])], at.loc[at[by][::-1].idxmax()]
        losses.append(best["estimate"] - chosen["estimate"])
        variances.append(best["standard_error"] ** 2 + chosen["standard_error"] ** 2)
    replications = int(min(at["replications"].min() for at in budgets))
    error = float(np.sqrt(np.sum(variances)) / len(budgets))
    return Evidence(float(np.mean(losses)), MARGIN, error, replications=replications, comparisons=len(SIZES))


def _less_than_usual(budgets: list[pd.DataFrame], by: str) -> Evidence:
    """Return the success lost by a choice less that lost by groups of `USUAL`, on average over the budgets."""
    differences, variances = [], []
    for at in budgets:
        usual, chosen = at.loc[USUAL], at.loc[at[by][::-1].idxmax()]
        differences.append(usual["estimate"] - chosen["estimate"])
        same = chosen.name == USUAL
        variances.append(0.0 if same else usual["standard_error"] ** 2 + chosen["standard_error"] ** 2)
    replications = int(min(at["replications"].min() for at in budgets))
    error = float(np.sqrt(np.sum(variances)) / len(budgets))
    return Evidence(float(np.mean(differences)), 0.0, error, replications=replications)
