"""R3: what group-relative advantages are given that a group is mixed, by all ordered groups."""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory import mixed_bias, mixed_share
from simulations.claims import claim, unconverted

PROBLEMS = ("two-arms", "tabular")
GROUP_SIZES = (2, 3, 4)
STATEMENTS = ("R3/printed", "R3/own reward", "R3/gradient")


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem and group size; exact, so quick is no different."""
    return [Cell({"problem": name, "group_size": size}) for name in PROBLEMS for size in GROUP_SIZES]


def conditional(point: gt.Point, prompt: int, size: int, mixed: bool) -> tuple[float, float, Array]:
    """Sum over all ordered groups of a prompt's outcomes, given that some are right, and if `mixed` that some are wrong.

    Returns
    -------
    mean, right : float
        The expected group mean, and that given besides that the first response is right.
    update : ndarray, shape (D,)
        The expected covector of the update with advantages Z - group mean.
    """
    groups = np.array(list(product(range(point.outcome_responses.size), repeat=size)))
    rewards = point.rewards[prompt][groups]
    weights = point.outcome_probabilities[prompt][groups].prod(axis=1)
    kept = rewards.max(axis=1) == 1.0
    if mixed:
        kept &= rewards.min(axis=1) == 0.0
    weights, rewards, groups = weights[kept] / weights[kept].sum(), rewards[kept], groups[kept]
    means = rewards.mean(axis=1)
    covectors = point.covectors[prompt][point.outcome_responses[groups]]
    update = np.einsum("n,ng,ngd->d", weights, rewards - means[:, None], covectors) / size
    first = weights * rewards[:, 0]
    return float(weights @ means), float(first @ means / first.sum()), update


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, float]]:
    """Enumerate for every prompt with a success probability strictly between 0 and 1; broken: groups all right count as mixed."""
    problem, size = gt.gallery.problem(settings["problem"]), settings["group_size"]
    point = problem.at(problem.theta)
    found = []
    for prompt, p in enumerate(point.moments.value):
        bias, share = float(mixed_bias(p, size)), float(mixed_share(p, size))
        truth = (1.0 - 1.0 / size) * point.moments.gradient_covectors[prompt] / share
        row = {"p": float(p), "share": share}
        for name, mixed in (("found", True), ("broken", False)):
            mean, right, update = conditional(point, prompt, size, mixed)
            row |= {
                f"R3/printed, {name}": abs(mean - p - bias),
                f"R3/own reward, {name}": abs(right - p - bias),
                f"R3/gradient, {name}": float(np.abs(update - truth).max() / np.abs(truth).max()),
            }
        found.append(row)
    return found


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each prompt and statement: how far the two sides are apart, and how far with a broken law."""
    return [
        {
            **settings,
            "prompt": prompt,
            "p": row["p"],
            "share": row["share"],
            "statement": statement,
            "broken": row[f"{statement}, broken"],
            "prediction": 0.0,
            "estimate": row[f"{statement}, found"],
            **EXACT,
        }
        for prompt, row in enumerate(results[0])
        for statement in STATEMENTS
    ]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Judge each statement on each problem by the prompt and group size where it is farthest off."""
    found = []
    for (statement, problem), part in table.groupby(["statement", "problem"], sort=False):
        own, broken = (exact(largest(part[name]), 0.0) for name in ("estimate", "broken"))
        found.append(claim(str(statement), str(problem), own, broken, facts={"share of mixed groups": part["share"].min()}))
    return found


STUDY = unconverted(
    "mixed_group",
    "R3: advantages and update given a mixed group, by enumeration",
    cells,
    compute,
    rows,
    claims,
    STATEMENTS,
)
