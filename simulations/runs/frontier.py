"""P1, P2, P8, U9: the group size of a whole run, for each number of responses spent.

Each arm has its own best learning rate, which other runs chose. The controls are runs of the largest group size that have hardly
begun, and runs at a reckless learning rate. For the law, the control is linear in the responses.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.intervals import best_set
from simulations.runs import frontier_statements, frontier_verdicts
from simulations.runs.arms import MEASURES, Arm, measured, train, world_problems
from simulations.runs.frontier_statements import LOST
from simulations.runs.growth import SIZES, best_sizes, fit
from simulations.runs.other_worlds import LEARNED, LONG
from simulations.runs.tuning import Tuned, choice_variance, tuned, tuned_summary
from simulations.seeds import seed_of

STATEMENTS, POWERLESS = frontier_statements.STATEMENTS, frontier_statements.POWERLESS
FEWER, MANY, DEEP = range(-2, 7), range(1, 9), range(-3, 6)
RATES = {"SGD": FEWER, "Adam": range(-7, 2)}
"""The learning rates are these powers of 3; plain steps on the mean over many prompts are longer, those of a
network shorter.

Chosen after two runs: `DEEP`, because of `FEWER`, and of less, some group sizes wanted an end.
"""
LONG_SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512)
GROUP_SIZES = LONG_SIZES[:-1]
TUNING_RUNS, RUNS, OTHER_RUNS = 16, 384, 96
NOISY = ("few prompts", "wrong rewards", LONG, LEARNED)
"""Where prompts are few, runs end at different policies, and four times as many of them are wanted."""
FEW, LARGE, SMALL_PAIR, FACTOR = 4, 64, 2, 4
ARMS: tuple[tuple[Arm, int], ...] = (
    *((Arm("few prompts", name), 18) for name in ("rloo", "grpo")),
    (Arm("few prompts", "dropped"), 15),
    (Arm("few prompts", "grpo", "Adam"), 16),
    (Arm("few prompts", "grpo", "SGD", decaying=True), 16),
    *((Arm("few prompts", "grpo", responses=number), 16) for number in (64, 1024)),
    *((Arm("shared", name), 16) for name in ("rloo", "grpo")),
    *((Arm(name), 16) for name in ("tabular", "easy", "hard")),
    (Arm("wrong rewards"), 16),
)
"""With each, log2 of the most responses."""
COARSE_ARMS: tuple[tuple[Arm, int], ...] = (
    (Arm("wrong rewards", "rloo"), 16),
    *((Arm(world, name), 16) for world in (LONG, LEARNED) for name in ("grpo", "rloo")),
)
"""Those that take long, with every second group size from 4 on, where an update of groups of 2 takes longest."""
LEAST, LEAST_UPDATES = 11, 8
PAIRED = ("few prompts", "shared", "wrong rewards")
"""Worlds in which groups of 2 have an eighth of the responses of groups of 16."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each arm, one chunk for each group size; quick has two group sizes, and few runs."""
    listed = [
        cell_of(arm, [size for size in GROUP_SIZES if size <= arm.responses], most) for arm, most in ARMS[: 2 if quick else None]
    ]
    listed += [cell_of(arm, list(GROUP_SIZES[1::2]), most) for arm, most in COARSE_ARMS[: 0 if quick else None]]
    listed += [cell_of(Arm(world, responses=32), [SMALL_PAIR], 13, 7) for world in PAIRED[: 0 if quick else None]]
    return [_quick(cell) for cell in listed] if quick else listed


def cell_of(arm: Arm, sizes: list[int], most: int, least: int = LEAST) -> Cell:
    """Return the cell of an arm: log2 of the least and of the most responses, of at least `LEAST_UPDATES`."""
    budgets = [2**power for power in range(least, most + 1) if 2**power >= LEAST_UPDATES * arm.responses]
    few = DEEP if arm.world == LEARNED else RATES[arm.optimiser]
    rates = [3.0**power for power in (few if arm.world in NOISY else MANY)]
    counts = {"runs": RUNS if arm.world in NOISY else OTHER_RUNS, "tuning_runs": TUNING_RUNS, "rates": rates}
    return Cell(arm._asdict() | {"group_sizes": sizes, "budgets": budgets} | counts, len(sizes), shared=True)


def _quick(cell: Cell) -> Cell:
    fewer = {"group_sizes": [4, 16, 64], "budgets": [2**power for power in range(11, 15)], "runs": 16, "tuning_runs": 8}
    return Cell(dict(cell.settings) | fewer | {"rates": [1.0, 9.0, 81.0]}, 3, shared=True)


def _arm(settings: Settings) -> Arm:
    return Arm(**{name: settings[name] for name in Arm._fields})


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Mapping[str, Any]:
    """Train one group size with each learning rate, and anew with the best; groups of 64 with the largest too."""
    arm, size, rates = _arm(settings), settings["group_sizes"][chunk], settings["rates"]
    updates = [budget // arm.responses for budget in settings["budgets"]]

    def trained(rate: float, count: int, runs: int, seed: np.random.SeedSequence) -> Array:
        return train(arm, size, rate, updates[:count], runs, seed)

    found = tuned(trained, len(updates), rates, (settings["tuning_runs"], settings["runs"]), seed_of(rng))
    reckless = train(arm, size, rates[-1], updates[-1:], settings["runs"], seed_of(rng)) if size == LARGE else np.zeros((0, 1, 6))
    parts = {"judged": found.judged, "tuning": found.tuning, "chosen": found.chosen, "reckless": reckless[:, 0]}
    return {name: values.tolist() for name, values in parts.items()}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Measures by group size and budget, the best sizes and curves through them, and what is judged of pairs of arms."""
    arms = [Tuned(*(np.array(one[name]) for name in Tuned._fields)) for one in results]
    sizes, budgets, rates = (np.array(settings[name]) for name in ("group_sizes", "budgets", "rates"))
    samples = np.stack([arm.judged for arm in arms], axis=1)  # (R, sizes, budgets, measures)
    table: Rows = []
    for c, budget in enumerate(budgets):
        kept = best_set(samples[:, :, c, 0])
        added = [choice_variance(samples[:, :, c, q]) for q in range(len(MEASURES))]
        for s, size in enumerate(sizes):
            places = arms[s].chosen[:, c]
            facts = {"rate": float(rates[round(float(np.median(places)))]), "in_set": bool(kept[s])}
            facts["at_end"] = float(np.isin(places, (0, len(rates) - 1)).mean())
            for q, measure in enumerate(MEASURES):
                at = {"quantity": measure, "group_size": int(size), "budget": int(budget)}
                table.append(at | facts | tuned_summary(samples[:, s, c, q], added[q]))
    if len(sizes) > 2:
        table += _sizes(samples[..., 0], sizes, budgets)
        scores = np.array([[arm.tuning[arm.chosen[:, c], c].mean() for c in range(len(budgets))] for arm in arms])
        reckless = next((np.array(one["reckless"]) for one in results if len(one["reckless"])), None)
        table += _contrasts(settings, samples, scores, reckless)
    return [dict(_arm(settings)._asdict()) | {"prediction": np.nan} | row for row in table]


def _sizes(samples: Array, sizes: Array, budgets: Array) -> Rows:
    """Log2 of the best group size at each budget, with its error; and the curves through it, with Akaike's criterion."""
    rng = np.random.default_rng(len(samples))
    found = np.array([best_sizes(samples[:, :, c], sizes, rng) for c in range(len(budgets))])
    x, y = np.log2(budgets), found[:, 0]
    errors = np.maximum(found[:, 1:].std(axis=1, ddof=1), 0.1)  # a parabola through a grid of octaves is no more exact
    table: Rows = [
        {"quantity": "best size", "budget": int(budget), "estimate": one, "standard_error": error, "replications": len(samples)}
        for budget, one, error in zip(budgets, y, errors, strict=True)
    ]
    if len(x) > 5:
        for name, curve in SIZES.items():
            parameters, criterion = fit(curve, x, y, errors)
            table.append({"quantity": "criterion", "curve": name, "estimate": criterion} | EXACT)
            smooth = np.arange(x[0], x[-1] + 0.25, 0.25)
            table += [
                {"quantity": "curve", "curve": name, "budget": round(2.0**place), "estimate": float(value)} | EXACT
                for place, value in zip(smooth, curve.at(smooth, parameters), strict=True)
            ]
    return table


def _contrasts(settings: Settings, samples: Array, scores: Array, reckless: Array | None) -> Rows:
    """Differences of runs between group sizes that the tuning runs chose: `role` is what is judged, or its control."""
    sizes = settings["group_sizes"]
    start = measured(settings["world"], world_problems(settings["world"])[0].theta)
    first, best = int(scores[:, 0].argmax()), int(scores[:, -1].argmax())
    larger = [s for s, size in enumerate(sizes) if size >= FACTOR * sizes[first]] or [len(sizes) - 1]
    later = larger[int(scores[larger, -1].argmax())]
    end, early = samples[:, :, -1], samples[:, :, 0, 0]
    gain = end[..., 0] - start[0]
    kept = 1.0 - LOST
    added = [choice_variance(end[..., q]) for q in range(len(MEASURES))]
    added_early = choice_variance(early)
    # What is added counts a choice for each arm, times the square of its factor.
    found: dict[tuple[str, str], tuple[Array, float]] = {
        ("P1/grows", "own"): (gain[:, first] - gain[:, later], 2.0 * added[0]),
        ("P1/grows", "control"): (early[:, first] - early[:, -1], 2.0 * added_early),
        ("U9/whole runs", "own"): (kept * gain[:, best] - gain[:, first], (kept**2 + 1.0) * added[0]),
        ("U9/whole runs", "control"): (
            kept * gain[:, best] - (early[:, -1] - start[0]),
            kept**2 * added[0] + added_early,
        ),
        ("best less worst", "own"): ((end[:, best, 2] - start[2]) - (end[:, best, 1] - start[1]), added[1] + added[2]),
        ("worst", "later"): (end[:, later, 1] - end[:, first, 1], 2.0 * added[1]),
        ("best", "later"): (end[:, later, 2] - end[:, first, 2], 2.0 * added[2]),
    }
    if reckless is not None and FEW in sizes:
        few = end[:, sizes.index(FEW), 5]
        found[("P1/interference", "own")] = end[:, sizes.index(LARGE), 5] - few, 2.0 * added[5]
        found[("P1/interference", "control")] = reckless[:, 5] - few, added[5]
    chosen = {"first": sizes[first], "later": sizes[later], "best": sizes[best]}
    return [
        {"quantity": "contrast", "statement": name, "role": role, "start": float(start[0])} | chosen | tuned_summary(*found_here)
        for (name, role), found_here in found.items()
    ]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge growth with the responses, one size for all, batches, interference, pairs, and the law of success."""
    yield from frontier_verdicts.claims(table)
