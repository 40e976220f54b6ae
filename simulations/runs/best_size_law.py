"""The best group size at a budget, predicted from the start of a run: the weight of the prompts met so far over the noise.

The law (docs/derivations.md, section 38) is judged on worlds other than those it was made on, over draws of each. Its choice of a
size is exact for each draw. The measure is the success that this choice loses against the best size and step of the same grid.
That size and step are the same for all draws. In the control the law knows of no noise.

One choice was made after trials on other worlds: a prompt counts as met where 8 successes are expected. There 1 and 2 lost more,
and 4 to 16 lost the same. On five worlds that are judged no more, 4 lost more than 8.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array, Integers
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence, highest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory.finite_group import finite_group_objective
from simulations.best_rate import lead
from simulations.runs.sized import RUNS, STEPS, WORLDS, over_draws
from simulations.runs.worlds import DRAWS as TOLD_DRAWS
from simulations.runs.worlds import WORLDS as WHOLE_RUNS
from simulations.seeds import seed_of
from simulations.statements import stated

LAW, AGAINST = stated("growth/law", "growth/law, against one size")
USUAL = 4
"""The best single size of the ten worlds on which the law was made: what a law must beat to be of use."""
TOLD = (("few prompts", "rloo"), ("few prompts", "grpo"), ("shared", "grpo"), ("easy", "grpo"), ("hard", "grpo"))
"""Worlds of the study `frontier`, and estimators, in which the law says its size and the frontier's runs show the best one."""
TOLD_SIZES, TOLD_BUDGETS = tuple(2**k for k in range(1, 9)), tuple(2**k for k in range(10, 19))
SIZES = (2, 4, 8, 16, 32, 64)
BUDGETS = (512, 2048, 8192)
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
DRAWS, QUICK_DRAWS = 48, 6
GRID = (*STEPS[1:], 2.0 * STEPS[-1])
"""Groups of 2 were best at the largest step of the other grid, after a first run, and no size near the least."""
MARGIN = 0.02
"""Two points of success: what the growth of the best size was worth at most in the trials."""
LOSSES = {"law": "loss of the law", "no noise": "loss of the law without noise"}
AHEAD = "always 4 less the law"
AHEAD_NO_NOISE = "always 4 less the law without noise"


def cells(quick: bool) -> list[Cell]:
    """One for each world and estimator in which it is judged, one chunk a size; and those in which others judge, without runs."""
    draws = QUICK_DRAWS if quick else DRAWS
    judged = [
        Cell({"world": world, "estimator": name, "draws": draws, "sizes": list(SIZES)}, len(SIZES), shared=True)
        for world, name in WHERE
    ]
    told = [Cell({"world": world, "estimator": name, "draws": TOLD_DRAWS, "sizes": []}) for world, name in TOLD]
    return judged + told


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, list[Any]]:
    """Return success at a group size by step, draw and budget, and what the law knows; without runs, the law's sizes."""
    world, estimator, draws = settings["world"], settings["estimator"], settings["draws"]
    if not settings["sizes"]:
        kind = WHOLE_RUNS[world]
        return {"said": [law_sizes(kind.problem(draw), estimator, TOLD_SIZES, TOLD_BUDGETS) for draw in range(draws)]}
    size, problems = settings["sizes"][chunk], [WORLDS[world].problem(draw) for draw in range(draws)]
    return {
        "success": over_draws(world, estimator, size, BUDGETS, (draws, RUNS), seed_of(rng), GRID).tolist(),
        "weight": [frontier_weights(problem, estimator, size).tolist() for problem in problems],
        "noise": [noise_at_start(problem, estimator, size) for problem in problems],
    }


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
    """Return success by size and budget, and what rules for the size lose on average over the budgets; or the law's sizes."""
    common = {"world": settings["world"], "estimator": settings["estimator"], "prediction": np.nan}
    if not settings["sizes"]:
        said = np.array(results[0]["said"])
        means = np.exp2(np.log2(said).mean(axis=0))
        return [
            common | {"quantity": "size that the law says", "budget": budget, "estimate": mean, "low": low, "high": high, **EXACT}
            for budget, mean, low, high in zip(TOLD_BUDGETS, means, said.min(axis=0), said.max(axis=0), strict=True)
        ]
    success, weight, noise = (np.array([one[name] for one in results]) for name in ("success", "weight", "noise"))
    sizes = settings["sizes"]
    # Among equal weights, which are those of rloo, the law without noise takes the largest group.
    chosen = {
        "law": (weight / np.sqrt(noise)[..., None]).argmax(axis=0),
        "no noise": len(sizes) - 1 - weight[::-1].argmax(axis=0),
    }
    table: Rows = []
    for k, size in enumerate(sizes):
        for c, budget in enumerate(BUDGETS):
            own = success[k, :, :, c]
            about = {"quantity": "success", "budget": budget, "group_size": size, "step": GRID[own.mean(axis=1).argmax()]}
            table.append(common | about | {"said": float((chosen["law"][:, c] == k).mean())} | lead([own]))
    best = [success[..., c].reshape(-1, settings["draws"]) for c in range(len(BUDGETS))]
    always = {size: list(np.moveaxis(success[k], -1, 0)) for k, size in enumerate(sizes)}
    by_rule = {rule: _at_chosen(success, places) for rule, places in chosen.items()}
    contrast = [sign / len(BUDGETS) for sign in (1.0, -1.0) for _ in BUDGETS]
    for name, one, other in (
        *((LOSSES[rule], best, sides) for rule, sides in by_rule.items()),
        *((f"loss of always {size}", best, sides) for size, sides in always.items()),
        (AHEAD, always[USUAL], by_rule["law"]),
        (AHEAD_NO_NOISE, always[USUAL], by_rule["no noise"]),
    ):
        table.append(common | {"quantity": name} | lead([*one, *other], contrast))
    return table


def _at_chosen(success: Array, places: Integers) -> list[Array]:
    """Return at each budget the success by step and draw of the sizes chosen for each draw, of places (draws, budgets)."""
    draws = np.arange(len(places))
    return [success[at, :, draws, c].T for c, at in enumerate(places.T)]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge what is lost by the law's choice, and by that of the largest weight."""
    for (world, estimator), own in table.groupby(["world", "estimator"], sort=False):
        success, losses = own[own["quantity"] == "success"], own.set_index("quantity")
        if success.empty:
            continue
        facts: dict[str, float] = {}
        for budget, at in success.set_index("group_size").groupby("budget"):
            facts[f"best G at {budget}"] = float(highest(at["estimate"]))
            facts[f"the law's at {budget}"] = float(np.exp2(at["said"] @ np.log2(at.index)))
        facts |= {f"loss of G = {size}": float(losses.loc[f"loss of always {size}", "estimate"]) for size in SIZES}
        law, broken = (evidence(losses.loc[name], MARGIN) for name in LOSSES.values())
        yield LAW.claim(f"{world} ({estimator})", law, broken, facts=facts)
        if estimator == "grpo":  # undivided, the law says one size itself
            ahead, behind = (evidence(losses.loc[name], 0.0) for name in (AHEAD, AHEAD_NO_NOISE))
            yield AGAINST.claim(f"{world} ({estimator})", ahead, behind)
