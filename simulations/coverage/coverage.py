"""Coverage of the confidence intervals, and what it costs in width.

Intervals are tried over a design of settings, against the group size, and with many replications at a few points. In the controls
the sets are narrowed.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import farthest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.laboratory import coverage_of_several
from simulations.coverage.candidates import CANDIDATES, TARGETS, Candidate
from simulations.coverage.narrowing import narrowing, remembering
from simulations.coverage.problems import LANGUAGE_MODEL, ONE_PROMPT, names, problem
from simulations.coverage.promise import LEVEL, POINT, nominal, share
from simulations.seeds import seed_of
from simulations.statements import stated

STATEMENTS = {
    ("value_naive", "value"): stated("CI/value_naive"),
    ("value_clustered", "value"): stated("CI/value_clustered"),
    ("value_effective", "value"): stated("CI/value_effective"),
    ("gradient_jackknife", "gradient"): stated("CI/gradient_jackknife"),
    ("gradient_between", "gradient"): stated("CI/gradient_between"),
    ("gradient_ellipsoid", "gradient, jointly"): stated("CI/gradient_ellipsoid"),
    **{("components_jackknife", name): stated(f"CI/components_jackknife/{name}") for name in ("c1", "c2", "c3")},
    ("mse_jackknife", "error"): stated("CI/mse_jackknife"),
    ("group_size_jackknife", "group size"): stated("CI/group_size_jackknife"),
    ("group_size_fieller", "group size"): stated("CI/group_size_fieller"),
    ("group_size_jackknife", "1/group size"): stated("CI/group_size_jackknife/reciprocal"),
    ("group_size_fieller", "1/group size"): stated("CI/group_size_fieller/reciprocal"),
}
"""By the interval and its target."""

NARROWING, CONSERVATIVE_NARROWING = 0.9, 0.6
"""What the sets of a negative control are shrunk by; more where the interval promises more than the nominal coverage."""
BATCH_SIZES, GROUP_SIZES = (16, 64), (4, 16)
CURVE_BATCH_SIZE, CURVE_GROUP_SIZES = 32, (4, 8, 16, 32)
POINT_SIZES = (64, 8)
REPLICATIONS = {"design": 3072, "curve": 1536, "point": 50_000, "wide miss": 12_500}
"""With 50,000, an exact interval is distinguished from one that covers one point less. A quarter of these gives limits of 0.012.
That is enough to refute an interval that covers two points less or more than it says, and to confirm one that promises less."""
SLOW_REPLICATIONS = 384
"""Of slow intervals, in the cells of the design, and of all that need the language model's scores in full."""
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
    listed = [(*one, *sizes) for one in shared for sizes in (design if one[0] == "design" else curve)]
    if not quick:
        head = {target: design[:-1] if target in NORMS else design for target in PILOT_TARGETS}
        listed += [("design", LANGUAGE_MODEL, target, *sizes) for target in PILOT_TARGETS for sizes in head[target]]
    listed += [("point", name, target, *POINT_SIZES) for name, targets in POINTS.items() for target in targets]
    keys = ("part", "problem", "target", "batch_size", "group_size")
    return [Cell(dict(zip(keys, one, strict=True)) | _replications(quick, *one)) for one in listed]


def _replications(quick: bool, part: str, name: str, target: str, *sizes: int) -> dict[str, int]:
    """Return how often the intervals of a cell are tried, and the slow ones among them."""
    if quick:
        slow = QUICK_SLOW_REPLICATIONS if sizes == (BATCH_SIZES[-1], GROUP_SIZES[-1]) else 0
        return {"replications": QUICK_REPLICATIONS, "slow_replications": slow}
    often = "wide miss" if part == "point" and (name, target) in WIDE_MISSES else part
    usual = SLOW_REPLICATIONS if name == LANGUAGE_MODEL and target in NORMS else REPLICATIONS[often]
    return {"replications": usual, "slow_replications": SLOW_REPLICATIONS if part == "design" else 0}


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Try the intervals of a target on the same data, all those that are tried equally often at once."""
    asked = [(settings["slow_replications" if one.slow else "replications"], one) for one in CANDIDATES]
    asked = [(often, one) for often, one in asked if often and one.target == settings["target"]]
    measured = []
    for often in dict.fromkeys(often for often, _ in asked):
        measured += _try([one for number, one in asked if number == often], settings, often, seed_of(rng))
    return measured


def _try(candidates: list[Candidate], settings: Settings, replications: int, seed: np.random.SeedSequence) -> Rows:
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
        rng=seed,
        workers=1,
        vectorized=True,
    )
    measured = []
    for candidate in candidates:
        table = _measured(records[candidate.name], records.get(_narrowed(candidate))).assign(interval=candidate.name)
        measured += [{str(key): value for key, value in row.items() if value == value} for row in table.to_dict("records")]
    return measured


def _narrowed(candidate: Candidate) -> str:
    """Return what a candidate's negative control is called."""
    return f"{candidate.name}, narrowed"


def _measured(covered: gt.Coverage, control: gt.Coverage | None) -> pd.DataFrame:
    """Measures and widths; with a control its coverage too, and a zip plot where there are intervals."""
    tables = [covered.measures(), _widths(covered)]
    if control is not None:
        shares = control.measures().query("measure == 'coverage'")
        tables += [shares.assign(measure="narrowed coverage")]
        if not covered.answers.joint:
            ranked = covered.zip().query("component in @ZIPPED")
            thinned = ranked.iloc[np.linspace(0, len(ranked) - 1, min(PERCENTILES, len(ranked))).round().astype(int)]
            ends = thinned[["low", "high"]] - covered.truth.flat[0]
            tables += [thinned.drop(columns="replication").assign(measure="zip", **ends)]
    return pd.concat(tables, ignore_index=True).rename(columns={"mcse": "standard_error"})


def _widths(covered: gt.Coverage) -> pd.DataFrame:
    """The median width, and the share of unbounded sets: the mean is infinite if one of them is."""
    labels = covered.measures().query("measure == 'coverage'")
    widths = covered.width.reshape(covered.replications, -1)
    rows = []
    for (_, row), width in zip(labels.iterrows(), widths.T, strict=True):
        width = width[~np.isnan(width)]
        key = {name: row[name] for name in ("level", "component", "replications", "failures")}
        if len(width):
            rows.append(key | {"measure": "median width", "estimate": float(np.median(width))})
            rows.append(key | {"measure": "unbounded", "estimate": float(np.isinf(width).mean())})
    return pd.DataFrame(rows)


def rows(settings: Settings, results: list[Any]) -> Iterator[dict[str, Any]]:
    """One row for each interval, component and measure, limits as B grows included, and for each percentile of the zip plots."""
    (measured,), labels = results, TARGETS[settings["target"]].labels
    common = {"success": "rare" if settings["problem"].endswith("rare") else "common", **settings}
    unknown = {"estimate": float("nan"), "standard_error": float("nan"), "replications": settings["replications"]}
    for row in measured:
        target, component = settings["target"], row["component"]
        if labels:
            target, component = labels[int(component)], ""
        elif component == "joint":
            target, component = f"{target}, jointly", ""
        yield common | unknown | row | {"target": target, "component": component, "prediction": nominal(row["measure"])}
    if settings["part"] == "curve":
        yield from _limits(settings)


def _limits(settings: Settings) -> Iterator[dict[str, Any]]:
    """One row for each component of the coverage that an interval tends to, as the number of prompts grows."""
    common = {**settings, "level": LEVEL, "measure": "limit", "prediction": LEVEL, **EXACT}
    for candidate in CANDIDATES:
        if candidate.target == settings["target"] and candidate.limit is not None:
            limits = np.asarray(candidate.limit(settings["problem"], settings["group_size"], LEVEL))
            for at, limit in np.ndenumerate(limits):
                yield common | {"interval": candidate.name, "component": ",".join(map(str, at)), "estimate": float(limit)}


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Read off, at each point, whether an interval covers as it says; the control is the same interval, narrowed.

    Of several components the one whose coverage is farthest from the nominal one.
    """
    points = table[(table["part"] == "point") & table["measure"].isin(["coverage", "narrowed coverage"])]
    for (name, target, interval), part in points.groupby(["problem", "target", "interval"], sort=False):
        own, control = (part[part["measure"] == measure].set_index("component") for measure in ("coverage", "narrowed coverage"))
        first, worst, statement = part.iloc[0], farthest(own["estimate"], LEVEL), STATEMENTS[interval, target]
        least = statement.kind == "upper bound"  # covering more often is no fault
        wanted = 1.0 - LEVEL + POINT.value * LEVEL if least else LEVEL
        covered, narrowed = (share(one.loc[worst], wanted, misses=least, comparisons=len(own)) for one in (own, control))
        yield statement.claim(f"{name} (B = {first['batch_size']}, G = {first['group_size']})", covered, narrowed)
