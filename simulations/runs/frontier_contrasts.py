"""Leads of arms over each other, over draws of a world, that the statements on whole runs are about."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.harness.study import EXACT, Rows
from simulations.best_rate import lead
from simulations.jackknife import jackknife_error
from simulations.runs.arms import MEASURES, Arm, measured, world_problems
from simulations.runs.frontier_statements import CEILING_MARGIN, KEPT, LAW_MARGIN, LOST, USUAL
from simulations.runs.growth import saturating

FEW, LARGE, FACTOR = 4, 64, 4
WORST, BEST, HARMED = (MEASURES.index(name) for name in ("worst of 8", "best of 8", "harmed"))
LESS = (1.0, -1.0)


class Runs(NamedTuple):
    """What an arm's runs reach on each draw, on average over the runs.

    Attributes
    ----------
    sizes, budgets : sequence of int
    values : ndarray, shape (budgets, measures, rates, sizes, draws)
    """

    sizes: Sequence[int]
    budgets: Sequence[int]
    values: Array

    def at(self, size: int, budget: int = -1, measure: int = 0) -> Array:
        """Return a measure of a group size at a place among the budgets, (rates, draws)."""
        return self.values[budget, measure, :, self.sizes.index(size)]

    def best_size(self, budget: int) -> int:
        """Return the group size of the most success at a place among the budgets."""
        return int(self.sizes[self.values[budget, 0].mean(axis=-1).max(axis=0).argmax()])


def label(arm: Arm) -> str:
    """Return what tells an arm from others, in words."""
    words = [arm.world, arm.estimator]
    words += [arm.optimiser] * (arm.optimiser != "SGD") + ["decaying"] * bool(arm.decaying)
    return ", ".join([*words, f"N = {arm.responses}"])


def start_of(world: str) -> Array:
    """Return the measures where training starts: those of success are the same in all draws."""
    return measured(world, world_problems(world)[0].theta)


def contrasts(arm: Arm, runs: Runs, start: Array) -> Rows:
    """Return leads between an arm's group sizes: `role` is what is judged, or its control, or a fact beside it.

    The size that is best at the smallest budget is chosen by all draws. If it was lucky there, it is lucky at the largest budget
    too, which counts against growth. The planned comparison of 64 with 8 chooses nothing but rates.
    """
    found: dict[tuple[str, str], dict[str, float]] = {}
    if {USUAL, LARGE} <= set(runs.sizes):
        found[(f"P1/64 over {USUAL}", "own")] = lead([runs.at(USUAL), runs.at(LARGE)], LESS)
        found[(f"P1/64 over {USUAL}", "control")] = lead([runs.at(USUAL, 0), runs.at(LARGE, 0)], LESS)
    laws: Rows = []
    if len(runs.sizes) > 2:
        found |= _between_sizes(runs, start)
        laws = _law(runs, float(start[0]))
    if len(runs.sizes) > 2 and arm.world != "tabular" and arm.optimiser == "SGD":
        sides, harmed = ([runs.at(size, -1, measure) for size in (LARGE, FEW)] for measure in (0, HARMED))
        found[("P1/interference", "own")] = lead(sides, LESS, harmed)
        reckless = [sides[0][-1:], sides[1]], LESS, [harmed[0][-1:], harmed[1]]
        found[("P1/interference", "control")] = lead(*reckless)
    named = [{"statement": name, "role": role} | row for (name, role), row in found.items()]
    return [{"quantity": "contrast", "problem": label(arm), "prediction": 0.0} | row for row in [*named, *laws]]


def _between_sizes(runs: Runs, start: Array) -> dict[tuple[str, str], dict[str, float]]:
    """Return leads of the best size, and of those that are `FACTOR` times the best one of the smallest budget or more."""
    first, last = runs.best_size(0), runs.sizes[-1]
    larger = [s for s, size in enumerate(runs.sizes) if size >= FACTOR * first] or [len(runs.sizes) - 1]
    end, early, kept = runs.values[-1], runs.at(last, 0) - start[0], 1.0 - LOST
    gain = end[0] - start[0]
    own, later = runs.at(first) - start[0], gain[:, larger]
    judged = {measure: [end[measure][:, larger], runs.at(first, -1, measure)] for measure in (WORST, BEST)}
    middle = end[BEST] - end[WORST] - (start[BEST] - start[WORST])
    found = {
        (f"P1/64 over {USUAL}", f"64 less {FEW}"): lead([runs.at(LARGE), runs.at(FEW)], LESS),
        ("U9/whole runs", "own"): lead([gain, own], (kept, -1.0)),
        ("U9/whole runs", "control"): lead([gain, early], (kept, -1.0)),
        ("kind", "best less worst"): lead([gain], judged=[middle]),
        ("kind", "larger groups add to the worst of 8"): lead([later, own], LESS, judged[WORST]),
        ("kind", "larger groups add to the best of 8"): lead([later, own], LESS, judged[BEST]),
    }
    if first < last:
        found[("P1/grows", "own")] = lead([own, later], LESS)
        found[("P1/grows", "control")] = lead([runs.at(first, 0), runs.at(last, 0)], LESS)
    return found


def _law(runs: Runs, start: float) -> Rows:
    """How far the law of success, fitted up to a quarter of the responses, is off at the end; the control is linear in C."""
    budgets = np.array(runs.budgets, dtype=float)
    known = budgets <= budgets[-1] / 4
    if known.sum() <= 3:
        return []
    x, end = np.log2(budgets[known]), np.log2(budgets[-1])
    course = runs.values[:, 0, :, runs.sizes.index(runs.best_size(-1))]  # (budgets, rates, draws)
    draws = course.shape[-1]

    def misses(course: Array) -> Array:
        y = course[known]
        line = y[-1] + (y[-1] - y[-2]) * (budgets[-1] - budgets[known][-1]) / np.diff(budgets[known][-2:])[0]
        return course[-1] / np.array([float(saturating(x, y, start)(np.array(end))), line]) - 1.0

    without = (np.eye(draws) != 1.0) / (draws - 1.0)
    errors = jackknife_error(np.array([misses((course @ shares).max(axis=-1)) for shares in without]))
    found = misses(course.mean(axis=-1).max(axis=-1))
    return [
        {"statement": "P8/law", "role": role, "prediction": LAW_MARGIN, "replications": draws}
        | {"estimate": float(abs(miss)), "standard_error": float(error)}
        for role, miss, error in zip(("own", "control"), found, errors, strict=True)
    ]


def contrasts_of_arms(arms: Mapping[Arm, Runs]) -> Rows:
    """Return leads between arms of one world, on the same draws: batches, pairs of responses, and two ceilings."""
    table: Rows = []
    for arm, runs in arms.items():
        start = float(start_of(arm.world)[0])
        found: dict[tuple[str, str], dict[str, float]] = {}
        problem, prediction = f"{arm.world}, {arm.estimator}", 0.0
        same = {one.responses: own for one, own in arms.items() if one._replace(responses=64) == arm and one.responses >= 64}
        rival = arms.get(arm._replace(estimator="grpo"))
        if len(same) > 2:
            ends = {number: own.values[own.budgets.index(runs.budgets[-1]), 0] - start for number, own in same.items()}
            least = min(ends.values(), key=lambda end: end.mean(axis=-1).max())
            every = np.concatenate(list(ends.values()), axis=1)
            early = runs.at(runs.sizes[-1], 0) - start
            found = {
                ("P1/batch", "own"): lead([every, least], (1.0 - LOST, -1.0)),
                ("P1/batch", "control"): lead([every, early], (1.0 - LOST, -1.0)),
            }
            found |= {("P1/batch", f"success, N = {number}"): lead([end + start]) for number, end in ends.items()}
        elif arm.responses == 32:
            usual, b = arms[arm._replace(responses=256)], runs.budgets[-1]
            problem += f", {b // 32} updates"
            rival_end = usual.at(16, usual.budgets.index(8 * b))
            found = {
                ("P2", "own"): lead([rival_end, runs.at(2)], (KEPT, -1.0)),
                ("P2", "control"): lead([rival_end, runs.at(2, runs.budgets.index(b // 16))], (KEPT, -1.0)),
            }
            whole, less, equal = (
                lead([side])["estimate"] for side in (rival_end, runs.at(2), usual.at(2, usual.budgets.index(8 * b)))
            )
            found[("P2", "share")] = {"estimate": less / whole} | EXACT
            found[("P2", "share at equal responses")] = {"estimate": equal / whole} | EXACT
        elif arm.estimator == "rloo" and rival is not None:
            problem, prediction = arm.world, CEILING_MARGIN
            plain, divided = runs.values[-1, 0], rival.values[-1, 0]
            ceilings = {name: lead([side]) for name, side in (("rloo", plain), ("grpo", divided))}
            scale = ceilings["rloo"]["estimate"]
            for role, side in (("own", divided), ("control", rival.at(rival.sizes[-1], 0))):
                row = lead([side, plain], LESS)
                shares = {"estimate": abs(row["estimate"]) / scale, "standard_error": row["standard_error"] / scale}
                found[("P8/ceiling", role)] = {**row, **shares, "low": np.nan, "high": np.nan}
            found |= {("P8/ceiling", f"ceiling of {name}"): row for name, row in ceilings.items()}
        common = arm._asdict() | {"quantity": "contrast", "problem": problem, "prediction": prediction}
        table += [common | {"statement": name, "role": role} | row for (name, role), row in found.items()]
    return table
