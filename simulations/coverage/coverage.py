"""Coverage of the confidence intervals, and what it costs in width.

It is measured over a design, against the group size, and precisely at a few points, where it is judged: of several components the
one whose coverage is farthest from the nominal one.  Broken, the same sets are narrowed.
"""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim, Share, Statement
from grpo_theory.evidence.reading import farthest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.laboratory import coverage_of_several
from simulations.coverage.candidates import CANDIDATES, TARGETS, Candidate
from simulations.coverage.narrowing import narrowing, remembering
from simulations.coverage.problems import LANGUAGE_MODEL, ONE_PROMPT, names, problem
from simulations.coverage.statements import POINT, covers


def _stated(one: Candidate, target: str) -> Statement:
    """Return the statement that an interval covers a target, which may be one of several components, or all of them jointly."""
    suffix = "/reciprocal" if target == "1/group size" else f"/{target}" if target in TARGETS[one.target].labels else ""
    return covers(f"{one.name}{suffix}", target, one.source, conservative=one.conservative)


STATEMENTS = {
    (one.name, target): _stated(one, target)
    for one in CANDIDATES
    if one.source
    for target in TARGETS[one.target].labels or (f"{one.target}, jointly" if one.joint else one.target,)
}
"""By interval and target."""
LEVEL = 0.95
NARROWING, CONSERVATIVE_NARROWING = 0.9, 0.6
"""What the sets are shrunk by where they are broken; more where the interval promises more than the nominal coverage."""
BATCH_SIZES, GROUP_SIZES = (16, 64), (4, 16)
CURVE_BATCH_SIZE, CURVE_GROUP_SIZES = 32, (4, 8, 16, 32)
POINT_SIZES = (64, 8)
REPLICATIONS = {"design": 3072, "curve": 1536, "point": 50_000}
SLOW_REPLICATIONS = 384
"""Of slow intervals, in the cells of the design, and of all that need the language model's scores in full."""
QUICK_REPLICATIONS, QUICK_SLOW_REPLICATIONS = 128, 32
QUICK_PROBLEMS = ("half-trained, balanced", "half-trained, rare")
POINTS = {
    "half-trained, balanced": ("value", "gradient", "components", "error", "group size"),
    "half-trained, rare": ("value", "gradient"),
    ONE_PROMPT: ("1/group size",),
}
PILOT_TARGETS = ("value", "gradient", "components", "error", "group size")
NORMS = ("components", "error", "group size")
"""Targets that need the language model's scores in full."""
PERCENTILES = 200
ZIPPED = ("", "0")
"""The component, the first, that a zip plot shows."""


def cells(quick: bool) -> list[Cell]:
    """The full factorial design, a curve against the group size, and points with many replications.

    Left out: the language model's norms at the largest batch, each of which takes as long as a hundred of the other batches.
    """
    problems = QUICK_PROBLEMS if quick else names()
    design = [(b, g) for b in BATCH_SIZES for g in GROUP_SIZES]
    curve = [(CURVE_BATCH_SIZE, g) for g in (CURVE_GROUP_SIZES[:2] if quick else CURVE_GROUP_SIZES)]
    shared = [(part, name, target) for part in ("design", "curve") for name in problems for target in PILOT_TARGETS]
    found = [(*one, *sizes) for one in shared for sizes in (design if one[0] == "design" else curve)]
    if not quick:
        head = {target: design[:-1] if target in NORMS else design for target in PILOT_TARGETS}
        found += [("design", LANGUAGE_MODEL, target, *sizes) for target in PILOT_TARGETS for sizes in head[target]]
    found += [("point", name, target, *POINT_SIZES) for name, targets in POINTS.items() for target in targets]
    keys = ("part", "problem", "target", "batch_size", "group_size")
    return [Cell(dict(zip(keys, one, strict=True)) | _replications(quick, *one)) for one in found]


def _replications(quick: bool, part: str, name: str, target: str, *sizes: int) -> dict[str, int]:
    """Return how often the intervals of a cell are tried, and the slow ones among them."""
    if quick:
        slow = QUICK_SLOW_REPLICATIONS if sizes == (BATCH_SIZES[-1], GROUP_SIZES[-1]) else 0
        return {"replications": QUICK_REPLICATIONS, "slow_replications": slow}
    usual = SLOW_REPLICATIONS if name == LANGUAGE_MODEL and target in NORMS else REPLICATIONS[part]
    return {"replications": usual, "slow_replications": SLOW_REPLICATIONS if part == "design" else 0}


def simulate(settings: Settings, rng: np.random.SeedSequence, chunk: int) -> Rows:
    """Try the intervals of a target on the same data, all those that are tried equally often at once."""
    asked = [(settings["slow_replications" if one.slow else "replications"], one) for one in CANDIDATES]
    asked = [(often, one) for often, one in asked if often and one.target == settings["target"]]
    found = []
    for often in dict.fromkeys(often for often, _ in asked):
        found += _try([one for number, one in asked if number == often], settings, often, rng)
    return found


def _try(candidates: list[Candidate], settings: Settings, replications: int, rng: np.random.SeedSequence) -> Rows:
    """Ask all candidates, and at a point their narrowed sets, about each block of data."""
    name, target = settings["problem"], TARGETS[settings["target"]]
    functions = {}
    for candidate in candidates:
        functions[candidate.name] = remembering(candidate.function)
        if settings["part"] == "point":
            factor = CONSERVATIVE_NARROWING if candidate.conservative else NARROWING
            functions[_narrowed(candidate)] = narrowing(functions[candidate.name], factor)
    records = coverage_of_several(
        functions,
        problem(name),
        target.truth(name),
        experiment=target.experiment(name, settings["batch_size"], settings["group_size"]),
        level=LEVEL,
        replications=replications,
        rng=rng,
        workers=1,
        vectorized=True,
    )
    found = []
    for candidate in candidates:
        rows = _measured(records[candidate.name], records.get(_narrowed(candidate))).assign(interval=candidate.name)
        found += [{str(key): value for key, value in row.items() if value == value} for row in rows.to_dict("records")]
    return found


def _narrowed(candidate: Candidate) -> str:
    """Return what a candidate's narrowed twin is called."""
    return f"{candidate.name}, narrowed"


def _measured(found: gt.Coverage, control: gt.Coverage | None) -> pd.DataFrame:
    """Measures and widths; with a control its coverage too, and a zip plot where there are intervals."""
    tables = [found.measures(), _widths(found)]
    if control is not None:
        shares = control.measures().query("measure == 'coverage'")
        tables += [shares.assign(measure="narrowed coverage")]
        if not found.answers.joint:
            ranked = found.zip().query("component in @ZIPPED")
            thinned = ranked.iloc[np.linspace(0, len(ranked) - 1, min(PERCENTILES, len(ranked))).round().astype(int)]
            ends = thinned[["low", "high"]] - found.truth.flat[0]
            tables += [thinned.drop(columns="replication").assign(measure="zip", **ends)]
    return pd.concat(tables, ignore_index=True)


def _widths(found: gt.Coverage) -> pd.DataFrame:
    """The median width, and the share of unbounded sets: the mean is infinite if one of them is."""
    labels = found.measures().query("measure == 'coverage'")
    widths = found.width.reshape(found.replications, -1)
    rows = []
    for (_, row), width in zip(labels.iterrows(), widths.T, strict=True):
        width = width[~np.isnan(width)]
        key = {name: row[name] for name in ("level", "component", "replications", "failures")}
        if len(width):
            rows.append(key | {"measure": "median width", "estimate": float(np.median(width))})
            rows.append(key | {"measure": "unbounded", "estimate": float(np.isinf(width).mean())})
    return pd.DataFrame(rows)


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each interval, component and measure, limits as B grows included, and for each percentile of the zip plots."""
    labels = TARGETS[settings["target"]].labels
    found = []
    for row in results[0]:
        target, component = settings["target"], row["component"]
        if labels:
            target, component = labels[int(component)], ""
        elif component == "joint":
            target, component = f"{target}, jointly", ""
        success = "rare" if settings["problem"].endswith("rare") else "common"
        place = {"target": target, "component": component, "success": success}
        place["prediction"] = LEVEL if row["measure"].endswith("coverage") else float("nan")
        place["standard_error"] = row.get("mcse", float("nan"))
        unknown = {"estimate": float("nan"), "replications": settings["replications"]}
        found.append(dict(settings) | unknown | {name: value for name, value in row.items() if name != "mcse"} | place)
    return found + (_limits(settings) if settings["part"] == "curve" else [])


def _limits(settings: Settings) -> Rows:
    """One row for each component of the coverage that an interval tends to, as the number of prompts grows."""
    found = []
    for candidate in CANDIDATES:
        if candidate.target == settings["target"] and candidate.limit is not None:
            limits = np.asarray(candidate.limit(settings["problem"], settings["group_size"], LEVEL))
            common = dict(settings) | {"level": LEVEL, "interval": candidate.name, "measure": "limit"}
            common |= {"prediction": LEVEL, **EXACT}
            found += [
                common | {"component": ",".join(map(str, at)), "estimate": float(limits[at])} for at in np.ndindex(limits.shape)
            ]
    return found


def claims(table: pd.DataFrame) -> list[Claim]:
    """Read off, at each point, whether an interval covers as it says."""
    points = table[(table["part"] == "point") & table["measure"].isin(["coverage", "narrowed coverage"])]
    found = []
    for (name, target, interval), part in points.groupby(["problem", "target", "interval"], sort=False):
        shares = part.pivot(index="component", columns="measure", values="estimate")
        worst = shares.loc[farthest(shares["coverage"], LEVEL)]
        first, counts = part.iloc[0], part.groupby("measure")["replications"].first()
        statement = STATEMENTS[str(interval), str(target)]
        own, broken = (
            _evidence(float(worst[measure]), statement.kind == "upper bound", int(counts[measure]), len(shares))
            for measure in ("coverage", "narrowed coverage")
        )
        found.append(statement.claim(f"{name} (B = {first['batch_size']}, G = {first['group_size']})", own, broken))
    return found


def _evidence(share: float, conservative: bool, replications: int, comparisons: int) -> Share:
    """The share of replications that cover, or of those that miss where covering more often is no fault."""
    estimate, wanted = (1.0 - share, 1.0 - LEVEL + POINT.value * LEVEL) if conservative else (share, LEVEL)
    return Share(estimate, wanted, replications=replications, comparisons=comparisons)
