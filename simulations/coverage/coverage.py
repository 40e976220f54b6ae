"""Coverage of the confidence intervals, and what it costs in width.

Intervals are tried over a design of settings, against the group size, and with many replications at a few points. In the controls
the sets are narrowed.
"""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Share
from grpo_theory.harness import check, rows, run
from grpo_theory.laboratory import coverage_of_several
from simulations.coverage.candidates import CANDIDATES, LABELS, LEVEL, truth
from simulations.coverage.narrowing import narrowing, remembering
from simulations.coverage.problems import LANGUAGE_MODEL, NAMES, ONE_PROMPT, directions
from simulations.coverage.problems import problem as problem_of
from simulations.seeds import seed_of
from simulations.statements import stated

SUFFIXES = {"c1": "/c1", "c2": "/c2", "c3": "/c3", "1/group size": "/reciprocal"}
"""Of ids, by the target of an interval whose name is not enough."""


def id_of(interval, target):
    """Return the id of what an interval of a target states."""
    return f"CI/{interval}{SUFFIXES.get(target, '')}"


TRIED = [(one.name, target) for one in CANDIDATES if not one.slow for target in LABELS.get(one.target, (one.target,))]
STATEMENTS = stated(*(id_of(*one) for one in TRIED))

NARROWING, CONSERVATIVE_NARROWING = 0.9, 0.6
"""What the sets of a negative control are shrunk by; more where the interval promises more than the nominal coverage."""
BATCH_SIZES, GROUP_SIZES = (16, 64), (4, 16)
CURVE_BATCH_SIZE, CURVE_GROUP_SIZES = 32, (4, 8, 16, 32)
POINT_SIZES = (64, 8)
REPLICATIONS = {"design": 1536, "curve": 768, "point": 50_000, "wide miss": 12_500}
"""With 50,000, an exact interval is distinguished from one that covers one point less. A quarter of these gives limits of 0.012.
That is enough to refute an interval that covers two points less or more than it says, and to confirm one that promises less."""
SLOW_REPLICATIONS = 192
"""Of slow intervals, in the cells of the design, and of all that need the language model's scores in full. They tell a coverage
to 1.6%, and the others of the design to 0.6%."""
QUICK_REPLICATIONS, QUICK_SLOW_REPLICATIONS = 128, 32
QUICK_PROBLEMS = ("half-trained, balanced", "half-trained, rare")
POINTS = {
    "half-trained, balanced": ("value", "gradient", "components", "error", "group size"),
    "half-trained, rare": ("value", "gradient"),
    ONE_PROMPT: ("1/group size",),
}
WIDE_MISSES = (
    ("half-trained, balanced", "error"),
    ("half-trained, rare", "value"),
    ("half-trained, rare", "gradient"),
    (ONE_PROMPT, "1/group size"),
)
"""Points at which every interval, and every control, is more than two points from what it is compared with.

They were chosen after an earlier full run, in which every point had 50,000 replications. The choice saves time and makes the
limits of these points wider. It changes neither what they are compared with nor the rule that judges them."""
PILOT_TARGETS = ("value", "gradient", "components", "error", "group size")
NORMS = ("components", "error", "group size")
"""Targets that need the language model's scores in full."""
PERCENTILES, SETTING = 200, "{problem} (B = {batch_size}, G = {group_size})"
MISSES = 1.0 - (1.0 - 0.01) * LEVEL
"""How often an interval may miss that promises at least the level, within a point."""


def cases(quick):
    """The full factorial design, a curve against the group size, and points with many replications.

    Left out: the language model's norms at the largest batch, each of which takes as long as a hundred of the other batches.
    """
    problems = QUICK_PROBLEMS if quick else NAMES
    design = [(b, g) for b in BATCH_SIZES for g in GROUP_SIZES]
    curve = [(CURVE_BATCH_SIZE, g) for g in (CURVE_GROUP_SIZES[:2] if quick else CURVE_GROUP_SIZES)]
    shared = [(part, name, target) for part in ("design", "curve") for name in problems for target in PILOT_TARGETS]
    listed = [(*one, *sizes) for one in shared for sizes in (design if one[0] == "design" else curve)]
    if not quick:
        head = {target: design[:-1] if target in NORMS else design for target in PILOT_TARGETS}
        listed += [("design", LANGUAGE_MODEL, target, *sizes) for target in PILOT_TARGETS for sizes in head[target]]
    listed += [("point", name, target, *POINT_SIZES) for name, targets in POINTS.items() for target in targets]
    keys = ("part", "problem", "target", "batch_size", "group_size")
    return [dict(zip(keys, one, strict=True)) | often(quick, *one) for one in listed]


def often(quick, part, name, target, *sizes):
    """Return how often the intervals of a cell are tried, and the slow ones among them."""
    if quick:
        slow = QUICK_SLOW_REPLICATIONS if sizes == (BATCH_SIZES[-1], GROUP_SIZES[-1]) else 0
        return {"replications": QUICK_REPLICATIONS, "slow_replications": slow}
    which = "wide miss" if part == "point" and (name, target) in WIDE_MISSES else part
    usual = SLOW_REPLICATIONS if name == LANGUAGE_MODEL and target in NORMS else REPLICATIONS[which]
    return {"replications": usual, "slow_replications": SLOW_REPLICATIONS if part == "design" else 0}


def points(quick):
    """List the points."""
    return [one for one in cases(quick) if one["part"] == "point"]


@run()
def tried(part, problem, target, batch_size, group_size, replications, slow_replications, rng):
    """Try the intervals of a target on the same data, all those that are tried equally often at once; at a point narrowed too."""
    tables = []
    for slow, number in ((False, replications), (True, slow_replications)):
        candidates = [one for one in CANDIDATES if one.target == target and one.slow == slow] if number else []
        functions = {}
        for one in candidates:
            functions[one.name] = remembering(one.function)
            if part == "point":
                factor = CONSERVATIVE_NARROWING if one.conservative else NARROWING
                functions[f"{one.name}, narrowed"] = narrowing(functions[one.name], factor)
        if functions:
            # Scores along the problem's directions, or else in full: coordinates that keep norms.
            asked = gt.Pilot(batch_size, group_size, directions(problem) if target in ("value", "gradient") else None)
            drawn: Any = {"replications": number, "rng": seed_of(rng), "workers": 1, "vectorized": True}
            records = coverage_of_several(functions, problem_of(problem), truth(target, problem), experiment=asked, **drawn)
            of_each = [measured(records[one.name], records.get(f"{one.name}, narrowed")) for one in candidates]
            tables += [table.assign(interval=one.name) for one, table in zip(candidates, of_each, strict=True)]
    table = pd.concat(tables, ignore_index=True).assign(target=target)
    if target in LABELS:
        table["target"] = [LABELS[target][int(component)] for component in table["component"]]
    table.loc[table["component"] == "joint", "target"] = f"{target}, jointly"
    table.loc[table["target"] != target, "component"] = ""
    return table.to_dict("list")


def shares_of(covered):
    """Return the coverage of each component."""
    return covered.measures().query("measure == 'coverage'").drop(columns="mcse")


def measured(covered, control):
    """Coverage, median width and the share of unbounded sets; with a control its coverage too, and a zip plot of intervals."""
    shares, widths = shares_of(covered), covered.width.reshape(covered.replications, -1).T
    tables, plain = [shares], shares.drop(columns=["low", "high"])
    # The mean width is infinite if one set is unbounded.
    for measure, of in (("median width", np.median), ("unbounded", lambda width: np.isinf(width).mean())):
        answered = (width[~np.isnan(width)] for width in widths)
        tables.append(plain.assign(measure=measure, estimate=[of(width) if width.size else np.nan for width in answered]))
    if control is not None:
        tables.append(shares_of(control).assign(measure="narrowed coverage"))
        if not covered.answers.joint:
            ranked = covered.zip().query("component in ('', '0')")
            thinned = ranked.iloc[np.linspace(0, len(ranked) - 1, min(PERCENTILES, len(ranked))).round().astype(int)]
            ends = thinned[["low", "high"]] - covered.truth.flat[0]
            tables.append(thinned.drop(columns="replication").assign(measure="zip", **ends))
    return pd.concat(tables, ignore_index=True)


@rows(of=tried, cases=cases)
def measures(found, part, problem, target, group_size):
    """Each interval, component and measure, each percentile of a zip plot, and limits as the number of prompts grows."""
    success = "rare" if problem.endswith("rare") else "common"
    yield from pd.DataFrame(found).assign(success=success).fillna({"replications": 0}).to_dict("records")
    for one in CANDIDATES:
        if part == "curve" and one.target == target and one.limit is not None:
            for at, limit in np.ndenumerate(one.limit(problem, group_size, LEVEL)):
                component = ",".join(map(str, at))
                yield {"level": LEVEL, "measure": "limit", "interval": one.name, "component": component, "estimate": limit}


@check(*STATEMENTS, of=tried, cases=points, broken={"measure": "narrowed coverage"}, setting=SETTING)
def coverage(found, replications, measure="coverage"):
    """Whether an interval covers as it says: of several components that whose coverage is farthest from the nominal one."""
    sides = {}
    for key, part in pd.DataFrame(found).groupby(["interval", "target"], sort=False):
        own, asked = (part.loc[part["measure"] == name, "estimate"].to_numpy() for name in ("coverage", measure))
        share, one = asked[np.abs(own - LEVEL).argmax()], stated(id_of(*key))
        least = one.kind == "upper bound"  # covering more often is no fault
        estimate, wanted = (1.0 - share, MISSES) if least else (share, LEVEL)
        sides[one.id] = Share(estimate, wanted, replications=replications, comparisons=own.size)
    return sides
