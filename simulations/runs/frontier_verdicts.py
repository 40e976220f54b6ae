"""What is judged of the frontier of whole runs, and how it is read off the table."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from grpo_theory.evidence import Claim, Evidence
from grpo_theory.evidence.reading import evidence
from simulations.runs.arms import MEASURES, Arm, measured, world_problems
from simulations.runs.frontier_statements import COVERS, GROWS, ONE_SIZE, SHARPENS, STATEMENTS

JUDGED = {statement.id: statement for statement in STATEMENTS}


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge each contrast beside its control, and what training adds to the best and to the worst of 8."""
    arms = {Arm(*key): part for key, part in table.groupby(list(Arm._fields), sort=False)}
    for part in arms.values():
        for (name, problem), rows in part[part["quantity"] == "contrast"].groupby(["statement", "problem"], sort=False):
            if name in JUDGED:
                roles = rows.set_index("role")
                own, control = (evidence(roles.loc[role]) for role in ("own", "control"))
                facts = roles["estimate"].drop(["own", "control"]).to_dict()
                facts |= {"draws of the other sign": float(roles.loc["own", "other_sign"])} if name != "P8/law" else {}
                facts |= _facts(part) if name in (GROWS.id, ONE_SIZE.id) else {}
                yield JUDGED[name].claim(problem, own, control, facts=facts)
    yield from _kinds({arm.world: part for arm, part in arms.items() if arm.world in ("easy", "hard")})


def _facts(part: pd.DataFrame) -> dict[str, float]:
    """Return the best group sizes of the first and last budget, and which curve of them Akaike's criterion prefers."""
    sizes = part[part["quantity"] == "best size"].set_index("budget")["estimate"]
    criteria = part[part["quantity"] == "criterion"]
    facts = {f"best G at {budget:,.0f}": float(2.0 ** sizes.loc[budget]) for budget in (sizes.index.min(), sizes.index.max())}
    return facts | {f"criterion, {row['curve']}": float(row["estimate"]) for _, row in criteria.iterrows()}


def _kinds(kinds: dict[str, pd.DataFrame]) -> Iterator[Claim]:
    """What training adds to the best less what it adds to the worst of 8.

    The controls are what is known to cover, hard prompts under a uniform policy, and to sharpen, easy prompts.
    """
    if len(kinds) == 2:
        rows = {world: part[part["statement"] == "kind"].set_index("role") for world, part in kinds.items()}
        facts = {world: part["estimate"].drop("best less worst").to_dict() for world, part in rows.items()}
        own = {world: evidence(part.loc["best less worst"], 0.0) for world, part in rows.items()}
        turned = {world: replace(one, estimate=-one.estimate) for world, one in own.items()}
        problem = world_problems("hard")[0]
        thetas = problem.theta, np.zeros_like(problem.theta)
        start, uniform = (dict(zip(MEASURES, measured("hard", theta), strict=True)) for theta in thetas)
        worst, best = (float(uniform[name] - start[name]) for name in ("worst of 8", "best of 8"))
        yield SHARPENS.claim("easy", own["easy"], Evidence(best - worst, 0.0), facts=facts["easy"])
        yield COVERS.claim("hard", turned["hard"], turned["easy"], facts=facts["hard"])
