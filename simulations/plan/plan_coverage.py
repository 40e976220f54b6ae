"""Coverage of the planner's limits from rewards alone, and from gradients with heavy tails.

Limits from rewards alone are tried on laws of success rates of known truth, over numbers of prompts and group sizes. In the
control the rates seen are plugged in. The cells of gradients whose lengths have heavy tails are those of `heavy_tails`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

import grpo_theory as gt
from grpo_theory.arrays import Array, Flags, Integers
from grpo_theory.evidence import Claim, Share
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.plan.average import Reference, Terms, average_terms, mean_ends, ratio_ends
from grpo_theory.plan.brackets import RateFunction, power_of_two, reference_parameter
from grpo_theory.plan.effective import share_terms
from grpo_theory.plan.expected_step import PLAIN, raised, ratio_range, slope_function, times_variance
from simulations.plan import heavy_tails
from simulations.plan.rate_laws import LANGUAGE_MODEL, RateLaw, rate_laws
from simulations.statements import stated

QUANTITIES = (
    *("uniform share", "uniform share, doubled", "step", "weighted rate", "hard prompts", "hard weight", "learning rate"),
)
STATEMENTS = {name: stated(f"plan/{name}") for name in QUANTITIES}
HEAVY_TAILED = heavy_tails.STATEMENTS
"""Of the cells that `heavy_tails` computes."""

LEVEL = 0.95
MARGIN = 0.01
"""Of the level: 95% may be 94.05%, as in the study of all other intervals."""
MISSES = 1.0 - LEVEL + MARGIN * LEVEL
"""How often an interval may miss."""
HARD = 0.2
PROMPTS, SIZES = (32, 256, 2048), (2, 8, 64)
QUICK_PROMPTS, QUICK_SIZES = (32, 512), (8,)
POINTS = ("never, always, between", LANGUAGE_MODEL)
POINT_PROMPTS, POINT_SIZE = 256, 8
REPLICATIONS, POINT_REPLICATIONS, POINT_CHUNKS = 200, 5000, 8
QUICK_REPLICATIONS = 100
ROUNDING = 1e-12
"""GRPO's weight with two responses is 1/2 for every prompt, and its limits are that number."""
"""What is covered."""


def cells(quick: bool) -> list[Cell]:
    """All laws, numbers of prompts and group sizes; and two points with many replications, on which the claims rest."""
    sizes, prompts = (QUICK_SIZES, QUICK_PROMPTS) if quick else (SIZES, PROMPTS)
    often = (QUICK_REPLICATIONS, QUICK_REPLICATIONS, 1) if quick else (REPLICATIONS, POINT_REPLICATIONS, POINT_CHUNKS)
    design = [("design", name, b, n, often[0]) for name in rate_laws() for b in prompts for n in sizes]
    points = [("point", name, POINT_PROMPTS, POINT_SIZE, often[1]) for name in POINTS]
    keys = ("part", "law", "prompts", "size", "pilots")
    chunks = [1] * len(design) + [often[2]] * len(points)
    from_rewards = [Cell(dict(zip(keys, one, strict=True)), number) for one, number in zip(design + points, chunks, strict=True)]
    return [*from_rewards, *heavy_tails.cells(quick)]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, dict[str, float]]:
    """Draw pilots, and count how often the intervals hold the truth, and how often those do that take rates seen for rates."""
    if "ragged" in settings:
        return heavy_tails.compute(settings, rng, chunk)
    law, size = rate_laws()[settings["law"]], settings["size"]
    rates = law.draw((settings["pilots"], settings["prompts"]), rng)
    tables = count_tables(rng.binomial(size, rates), size)
    honest, plugged_in = honest_limits(tables), _limits(_seen_terms(size), tables)
    return {
        name: {
            "covered": int(_cover(honest[name], truth).sum()),
            "plugged_in": int(_cover(plugged_in[name], truth).sum()),
            "width": float(np.median(honest[name][1] - honest[name][0])),
            "truth": truth,
        }
        for name, truth in _truths(law, size).items()
    }


def _cover(limits: tuple[Array, Array], truth: float) -> Flags:
    low, high = limits
    return (low <= truth + ROUNDING) & (truth - ROUNDING <= high)


def count_tables(successes: Integers, size: int) -> Array:
    """Return how many prompts of each pilot have 0 to `size` successes, (pilots, size + 1), from successes (pilots, prompts)."""
    pilots = len(successes)
    cells = successes + (size + 1) * np.arange(pilots)[:, None]
    return np.bincount(cells.ravel(), minlength=pilots * (size + 1)).reshape(pilots, size + 1).astype(np.float64)


def honest_limits(tables: Array) -> dict[str, tuple[Array, Array]]:
    """Return the limits that the public functions give, of each pilot, from its numbers of prompts (pilots, size + 1)."""
    size, prompts = tables.shape[1] - 1, tables[0].sum()
    k = np.arange(size + 1.0)
    agree = tables @ (k * (k - 1.0) + (size - k) * (size - k - 1.0)) / (prompts * size * (size - 1.0))
    chosen = np.array([reference_parameter(share) for share in agree])
    limits = {name: (np.empty(chosen.size), np.empty(chosen.size)) for name in QUANTITIES}
    for a in np.unique(chosen):
        terms = _terms(size, Reference(float(a), power_of_two(prompts)))
        for name, some in _limits(terms, tables[chosen == a]).items():
            for ends, of_some in zip(limits[name], some, strict=True):
                ends[chosen == a] = of_some
    return limits


def _limits(terms: Mapping[str, Terms], tables: Array) -> dict[str, tuple[Array, Array]]:
    """Return limits from terms (size + 1,) for each number of successes, and how many prompts have it."""
    size = tables.shape[1] - 1
    responses = int(size * tables[0].sum())
    at = {name: replace(one, prompts=tables, responses=responses) for name, one in terms.items()}
    unit = 0.0, 1.0
    return {
        "uniform share": _share_ends(at["uniform"]),
        "uniform share, doubled": _share_ends(at["uniform, doubled"]),
        "step": mean_ends(at["weight"], LEVEL),
        "weighted rate": ratio_ends(at["steep weight times rate"], at["steep weight"], LEVEL, unit),
        "hard prompts": _share_ends(at["hard"]),
        "hard weight": ratio_ends(at["hard weight"], at["weight"], LEVEL, unit),
        "learning rate": ratio_ends(at["step"], at["step, doubled"], LEVEL, _sure_range(size)),
    }


def _share_ends(terms: Terms) -> tuple[Array, Array]:
    low, high = mean_ends(terms, LEVEL)
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


@cache
def _every(size: int) -> gt.RewardCounts:
    """Return counts in which each number of successes, 0 to size, comes once."""
    successes = np.arange(size + 1)
    return gt.RewardCounts(np.array([0.0, 1.0]), sparse.csr_array(np.stack([size - successes, successes], axis=1)))


@cache
def _functions(size: int) -> dict[str, RateFunction]:
    """Return the functions of the success rate whose means are asked for, but for the shares of uniform groups."""
    weight, doubled = (slope_function(_every(size), "grpo", n) for n in (size, 2 * size))
    steep = slope_function(_every(size), "max_rl", size)
    by_rate = RateFunction(lambda rate: steep.function(rate) * rate, (steep.key, "times rate"), raised(steep.coefficients))
    return {
        "weight": weight,
        "steep weight": steep,
        "steep weight times rate": by_rate,
        "hard": replace(PLAIN, high=HARD),
        "hard weight": replace(weight, high=HARD),
        "step": times_variance(weight),
        "step, doubled": times_variance(doubled),
    }


@cache
def _sure_range(size: int) -> tuple[float, float]:
    """Return between what the factor on the learning rate lies for sure, when groups are doubled."""
    return ratio_range(*(slope_function(_every(size), "grpo", n) for n in (size, 2 * size)))


@cache
def _terms(size: int, near: Reference) -> dict[str, Terms]:
    """Return the library's terms for each number of successes."""
    every = _every(size)
    uniform = {"uniform": share_terms(every, size, near), "uniform, doubled": share_terms(every, 2 * size, near)}
    return uniform | {name: average_terms(every, one, near) for name, one in _functions(size).items()}


@cache
def _seen_terms(size: int) -> dict[str, Terms]:
    """Return the terms of who takes the rates seen for success rates, so that the noise of small groups stays in."""
    rates = np.arange(size + 1) / size
    values = {
        "uniform": rates**size + (1.0 - rates) ** size,
        "uniform, doubled": rates ** (2 * size) + (1.0 - rates) ** (2 * size),
    } | {name: one.values(rates, above=True) for name, one in _functions(size).items()}
    return {name: Terms(one, one, (0.0, float(one.max())), (0.0, float(one.max())), 0) for name, one in values.items()}


def _truths(law: RateLaw, size: int) -> dict[str, float]:
    def uniform(group: int) -> float:
        return law.mean((1.0, *(0.0,) * (group - 1), 1.0))

    mean = {name: law.mean(one.coefficients, high=one.high) for name, one in _functions(size).items()}
    return {
        "uniform share": uniform(size),
        "uniform share, doubled": uniform(2 * size),
        "step": mean["weight"],
        "weighted rate": mean["steep weight times rate"] / mean["steep weight"],
        "hard prompts": mean["hard"],
        "hard weight": mean["hard weight"] / mean["weight"],
        "learning rate": mean["step"] / mean["step, doubled"],
    }


def rows(settings: Settings, results: list[Any]) -> Iterator[dict[str, Any]]:
    """One row for each quantity: the share of intervals that hold the truth, ours and the plug-in's, and our median width."""
    if "ragged" in settings:
        yield from heavy_tails.rows(settings, results)
        return
    for name in QUANTITIES:
        width = float(np.mean([chunk[name]["width"] for chunk in results]))
        facts = {"quantity": name, "width": width, "truth": results[0][name]["truth"], "prediction": LEVEL}
        yield dict(settings) | facts | heavy_tails.shares(results, name, settings["pilots"])


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Read off, at the points, that the intervals cover at least so often as they say; the control plugs in the rates seen."""
    yield from heavy_tails.claims(table)
    for row in table[table["part"] == "point"].to_dict("records"):
        own, control = (Share(1.0 - row[name], MISSES, replications=row["replications"]) for name in ("estimate", "plugged_in"))
        yield STATEMENTS[row["quantity"]].claim(f"{row['law']} (B = {row['prompts']}, n = {row['size']})", own, control)
