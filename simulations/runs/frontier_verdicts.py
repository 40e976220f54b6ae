"""What is judged of the frontier of whole runs, and how it is read off the table."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from grpo_theory.evidence import Claim, Evidence, Statement
from grpo_theory.evidence.reading import difference, distance, evidence
from simulations.runs.arms import MEASURES, Arm, measured, world_problems
from simulations.runs.frontier_statements import (
    BATCH,
    CEILING,
    CEILING_MARGIN,
    COVERS,
    GROWS,
    HARM,
    KEPT,
    LAW,
    LAW_MARGIN,
    LOST,
    ONE_SIZE,
    PAIRS,
    SHARPENS,
)
from simulations.runs.growth import saturating


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge growth with the responses, one size for all, batches, interference, pairs, and the law of success."""
    arms = {Arm(*key): part for key, part in table.groupby(list(Arm._fields), sort=False)}
    for arm, part in arms.items():
        contrasts = part[part["quantity"] == "contrast"]
        facts = _facts(part)
        for statement in (GROWS, ONE_SIZE, HARM):
            roles = contrasts[contrasts["statement"] == statement.id].set_index("role")
            if len(roles) and _applies(statement, arm, roles):
                own, control = (evidence(roles.loc[role], 0.0) for role in ("own", "control"))
                yield statement.claim(label(arm), own, control, facts=facts if statement is not HARM else {})
        yield from _law(arm, part)
    yield from _batches(arms)
    yield from _pairs(arms)
    yield from _ceilings(arms)
    yield from _kinds(arms)


def _applies(statement: Statement, arm: Arm, roles: pd.DataFrame) -> bool:
    """Whether there is a larger size to compare, and harm that another learning rate would do."""
    if statement is HARM:
        return arm.world != "tabular" and arm.optimiser == "SGD"
    return statement is not GROWS or bool(roles["later"].iloc[0] > roles["first"].iloc[0])


def label(arm: Arm) -> str:
    """Return what tells an arm from others, in words."""
    words = [arm.world, arm.estimator]
    words += [arm.optimiser] * (arm.optimiser != "SGD") + ["decaying"] * bool(arm.decaying)
    return ", ".join([*words, f"N = {arm.responses}"])


def _at(part: pd.DataFrame, quantity: str = "success", **where: int) -> pd.DataFrame:
    """Return the rows of a quantity at some group size or budget."""
    kept = part["quantity"] == quantity
    for name, value in where.items():
        kept &= part[name] == value
    return part[kept]


def _best(part: pd.DataFrame) -> pd.Series:
    """Return the row of success at the largest budget with the group size that the tuning runs chose."""
    chosen = part.loc[part["quantity"] == "contrast", "best"].iloc[0]
    return _at(part, budget=part["budget"].max(), group_size=chosen).iloc[0]


def _facts(part: pd.DataFrame) -> dict[str, float]:
    """Return the best group sizes of the first and last budget, and which curve of them Akaike's criterion prefers."""
    sizes = _at(part, "best size").set_index("budget")["estimate"]
    if sizes.empty:
        return {}
    facts = {f"best G at {budget:,.0f}": float(2.0 ** sizes.loc[budget]) for budget in (sizes.index.min(), sizes.index.max())}
    criteria = _at(part, "criterion").set_index("curve")["estimate"] if "curve" in part else {}
    return facts | {f"criterion, {curve}": float(value) for curve, value in criteria.items()}


def _law(arm: Arm, part: pd.DataFrame) -> Iterator[Claim]:
    """The law of success fitted up to a quarter of the responses, against what came; the control is linear in C."""
    if not len(_at(part, "contrast")):
        return
    row, start = _best(part), float(part["start"].max())
    course = _at(part, group_size=row["group_size"]).sort_values("budget")
    known = course[course["budget"] <= row["budget"] / 4]
    x, y, end = np.log2(known["budget"].to_numpy()), known["estimate"].to_numpy(), np.log2(row["budget"])
    if len(x) > 3:
        linear = y[-1] + (y[-1] - y[-2]) * (row["budget"] - known["budget"].iloc[-1]) / np.diff(known["budget"].iloc[-2:])[0]
        own, control = (distance(row, float(at), LAW_MARGIN) for at in (saturating(x, y, start)(np.array(end)), linear))
        yield LAW.claim(label(arm), own, control, facts={"success": float(row["estimate"])})


def _batches(arms: Mapping[Arm, pd.DataFrame]) -> Iterator[Claim]:
    """The least of the best successes with 64, 256 and 1,024 responses an update; the control has hardly begun."""
    for arm, part in arms.items():
        same = {
            one.responses: rows
            for one, rows in arms.items()
            if one._replace(responses=arm.responses) == arm and one.responses >= 64
        }
        if arm.responses == 64 and len(same) > 2:
            budget = part["budget"].max()
            ends = {number: _end_of(rows, budget) for number, rows in same.items()}
            best = max(ends.values(), key=lambda row: row["estimate"])
            least = min(ends.values(), key=lambda row: row["estimate"])
            early = _begun(part)
            start = float(part["start"].max())
            own, control = (_lost(best, row, start) for row in (least, early))
            facts = {f"success, N = {number}": float(row["estimate"]) for number, row in ends.items()}
            yield BATCH.claim(f"{arm.world}, {arm.estimator}", own, control, facts=facts)


def _end_of(part: pd.DataFrame, budget: int) -> pd.Series:
    """Return the row of the best group size at a budget."""
    at = _at(part, budget=budget)
    return at.loc[at["estimate"].idxmax()]


def _begun(part: pd.DataFrame) -> pd.Series:
    """Return the row of the largest group size at the smallest budget: runs that have hardly begun."""
    at = _at(part, budget=part["budget"].min())
    return at.loc[at["group_size"].idxmax()]


def _lost(best: pd.Series, other: pd.Series, start: float) -> Evidence:
    """Return what another loses of the best one's gain, less what may be lost."""
    kept = {
        **best,
        "estimate": (1.0 - LOST) * (best["estimate"] - start),
        "standard_error": (1.0 - LOST) * best["standard_error"],
    }
    return difference(kept, {**other, "estimate": other["estimate"] - start})


def _pairs(arms: Mapping[Arm, pd.DataFrame]) -> Iterator[Claim]:
    """Groups of 2 against KEPT of groups of 16 after as many updates; the control stops groups of 2 after a sixteenth of them."""
    for arm, part in arms.items():
        if arm.responses == 32:
            budget = part["budget"].max()
            late, early = (_at(part, budget=at).iloc[0] for at in (budget, budget // 16))
            rival = _at(arms[arm._replace(responses=256)], budget=8 * budget, group_size=16).iloc[0]
            kept = {**rival, "estimate": KEPT * rival["estimate"], "standard_error": KEPT * rival["standard_error"]}
            same = _at(arms[arm._replace(responses=256)], budget=8 * budget, group_size=2).iloc[0]
            facts = {
                "share": float(late["estimate"] / rival["estimate"]),
                "share at equal responses": float(same["estimate"] / rival["estimate"]),
            }
            own, control = (difference(kept, row) for row in (late, early))
            yield PAIRS.claim(f"{arm.world}, {arm.estimator}, {budget // 32:.0f} updates", own, control, facts=facts)


def _ceilings(arms: Mapping[Arm, pd.DataFrame]) -> Iterator[Claim]:
    """What GRPO and the leave-one-out estimator reach at the largest budget; the control is GRPO that has hardly begun."""
    for arm, part in arms.items():
        rival = arms.get(arm._replace(estimator="grpo"))
        if arm.estimator == "rloo" and rival is not None:
            plain, divided = _best(part), _best(rival)
            early = _begun(rival)
            sides = [_apart(plain, row) for row in (divided, early)]
            facts = {"ceiling of rloo": float(plain["estimate"]), "ceiling of grpo": float(divided["estimate"])}
            yield CEILING.claim(arm.world, sides[0], sides[1], facts=facts)


def _apart(one: pd.Series, other: pd.Series) -> Evidence:
    """Return how far two successes are apart, as a share of the first, against the margin of ceilings."""
    error = float(np.hypot(one["standard_error"], other["standard_error"]))
    row = {
        "estimate": float(other["estimate"]),
        "standard_error": error,
        "replications": min(one["replications"], other["replications"]),
    }
    return distance(row, float(one["estimate"]), CEILING_MARGIN)


def _kinds(arms: Mapping[Arm, pd.DataFrame]) -> Iterator[Claim]:
    """What training adds to the best less what it adds to the worst of 8.

    The controls are what is known to cover, hard prompts under a uniform policy, and to sharpen, easy prompts.
    """
    kinds = {arm.world: part for arm, part in arms.items() if arm.world in ("easy", "hard")}
    rows = {world: _at(part, "contrast").set_index("statement") for world, part in kinds.items()}
    if len(rows) == 2:
        own = {world: evidence(part.loc["best less worst"], 0.0) for world, part in rows.items()}
        turned = {world: replace(one, estimate=-one.estimate) for world, one in own.items()}
        facts = {
            world: {f"larger groups add to the {name} of 8": float(part.loc[name, "estimate"]) for name in ("worst", "best")}
            for world, part in rows.items()
        }
        problem = world_problems("hard")[0]
        thetas = problem.theta, np.zeros_like(problem.theta)
        start, uniform = (dict(zip(MEASURES, measured("hard", theta), strict=True)) for theta in thetas)
        worst, best = (float(uniform[name] - start[name]) for name in ("worst of 8", "best of 8"))
        yield SHARPENS.claim("easy", own["easy"], Evidence(best - worst, 0.0), facts=facts["easy"])
        yield COVERS.claim("hard", turned["hard"], turned["easy"], facts=facts["hard"])
