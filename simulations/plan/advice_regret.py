"""P1: does advice from a pilot at the start survive whole runs?  Success at the end that its group size loses.

Each group size trains at its own best learning rate, which other runs chose. The best size is chosen by runs, too, and judged on
others, four times over. The planner sees pilots of 64 prompts with 8 responses each, drawn from the first policy. The error
includes how far apart pilots end.

In the control groups are four times as large as recommended, or of the trained size next to that. Where the planner is compared
with one size, they are four times as large as that one. Against 8 they are eight times as large, as groups of 32 were not
trained. Beside them the planner is asked with permuted rewards, which tell nothing of a pilot's gradients. What it then loses
shows what a pilot is worth.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.arrays import Array, Integers
from grpo_theory.evidence import Claim, Evidence, Statement
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from grpo_theory.plan import Limits
from simulations.plan.asked_planner import CONTROL, LOGGED, PERMUTED, PLANNED, nearest, permuted, plan
from simulations.plan.error_parts import Part, along, best_by_others, of_runs, summary_of
from simulations.plan.problem_means import mean_over_problems
from simulations.plan.run_worlds import CHAIN_OF_TWELVE, LINEAR, WIDTHS, courses, draw_log, problem, sampler
from simulations.runs.arms import quietly
from simulations.runs.tuning import FOLDS, Tuned, choice_variance, tuned, tuned_summary
from simulations.seeds import child_seed, seed_of
from simulations.sources import OURS

PAGE = "docs/planner.md"
LOST = 0.02
"""Points of success at the end that are worth less than the pilot and the reading of its plan."""
BEST = "best"
STATEMENTS = {
    against: Statement(
        f"plan/run/{against}",
        PAGE,
        f"a pilot at the start of a run recommends a group size. At the end it has at most 2 points of success less than "
        f"{text}, averaged over problems",
        "upper bound",
        whose=OURS,
    )
    for against, text in (
        (BEST, "the size that other runs chose as the best"),
        ("always 4", "groups of 4"),
        ("always 8", "groups of 8"),
        ("always 16", "groups of 16"),
    )
}
NO_GAIN = Statement(
    "plan/run/gain over always 4",
    PAGE,
    "a pilot at the start of a run recommends a group size. At the end it has at most 2 points of success more than groups of 4, "
    "on average over problems. Groups of 4 did not need the pilot",
    "upper bound",
    whose=OURS,
)

NOT_TOLD = "groups four times as large lose 1 to 8 points here; these runs do not tell that from 2 at the report's level"
POWERLESS = {
    ("plan/run/best", "5 problems, rloo, *"): NOT_TOLD,
    ("plan/run/best", "5 problems, grpo, 64 updates"): NOT_TOLD,
    ("plan/run/always 4", "*"): NOT_TOLD,
}

ESTIMATORS = ("rloo", "grpo")
RESPONSES, PILOT = 256, 64
SIZES, QUICK_SIZES = (2, 4, 8, 16, 64), (4, 8, 16, 64)
HABITS = (4, 8, 16, 64)
"""Sizes that the planner is compared with; what it gains on the last is the control of its gain on the first."""
UPDATES = (16, 64)
"""Of a short and a long run, 4,096 and 16,384 responses."""
POWERS = {name: range(2, 7) for name in WIDTHS} | {LINEAR: range(2, 7), CHAIN_OF_TWELVE: range(-2, 4)}
"""The learning rates are these powers of 3."""
NAMES = tuple(POWERS)
TUNING_RUNS, RUNS, QUICK_RUNS, PILOTS, QUICK_PILOTS = 16, 64, 16, 32, 4
ARMS = (PLANNED, PERMUTED)
TOO_LARGE = 4
"""The broken planner's factor: the smallest power of 2 that costs more than the margin in most of these runs."""
BROKEN = {BEST: CONTROL, "always 4": "always 16", "always 8": "always 64", "always 16": "always 64"}
"""What is broken of each comparison; groups of 32 were not trained."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem and estimator; one chunk for each group size, and one for the pilots."""
    sizes, runs, pilots = (QUICK_SIZES, QUICK_RUNS, QUICK_PILOTS) if quick else (SIZES, RUNS, PILOTS)
    counts = {"sizes": list(sizes), "runs": runs, "tuning_runs": TUNING_RUNS if not quick else 8, "pilots": pilots}
    chosen = [(name, estimator) for name in NAMES for estimator in ESTIMATORS]
    return [Cell({"problem": name, "estimator": one} | counts, len(sizes) + 1, shared=True) for name, one in chosen]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Mapping[str, Any]:
    """Train a group size with each learning rate, and anew with the best; the last chunk asks the planner."""
    quietly()
    if chunk == len(settings["sizes"]):
        return recommended(settings, np.random.default_rng(child_seed(seed_of(rng), chunk)))
    case, size = problem(settings["problem"]), settings["sizes"][chunk]

    def trained(rate: float, budgets: int, runs: int, seed: np.random.SeedSequence) -> Array:
        starts, sizes = np.tile(case.theta, (runs, 1)), (RESPONSES // size, size)
        success = courses(case, starts, settings["estimator"], rate, sizes, UPDATES[:budgets], seed)[0]
        # A run that left the numbers has nothing left.
        return np.nan_to_num(success, nan=0.0)[..., None]

    rates = [3.0**power for power in POWERS[settings["problem"]]]
    found = tuned(trained, len(UPDATES), rates, (settings["tuning_runs"], settings["runs"]), seed_of(rng))
    return {name: values.tolist() for name, values in found._asdict().items()}


def recommended(settings: Settings, rng: np.random.Generator) -> dict[str, list[int]]:
    """Return the group size that each arm's planner recommends from each pilot: the nearest of those trained, in octaves."""
    case = problem(settings["problem"])
    drawn, sizes = sampler(case, case.theta), np.array(settings["sizes"])
    by_arm: dict[str, list[int]] = {arm: [] for arm in ARMS}
    for _ in range(settings["pilots"]):
        prompts = rng.choice(case.policy.n_prompts, PILOT, p=case.bandit.prompt_weights)
        log = draw_log(drawn, prompts, LOGGED, rng)
        for arm, pilot in zip(ARMS, (log, permuted(log, rng)), strict=True):
            asked = plan(pilot, settings["estimator"], Limits(budget=RESPONSES, max_group_size=int(sizes.max())))
            by_arm[arm].append(nearest(sizes, asked))
    return by_arm


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Success at the end by group size, and what the recommended one and the usual ones lose to the best, and to each other."""
    *trained, asked = results
    arms = [Tuned(*(np.array(one[name]) for name in Tuned._fields)) for one in trained]
    sizes = settings["sizes"]
    pilots = {arm: np.array([sizes.index(size) for size in asked[arm]]) for arm in ARMS}
    pilots[CONTROL] = np.minimum(np.searchsorted(sizes, TOO_LARGE * np.array(asked[PLANNED])), len(sizes) - 1)
    share = np.bincount(pilots[PLANNED], minlength=len(sizes)) / settings["pilots"]
    kept = {name: settings[name] for name in ("problem", "estimator", "pilots")}
    table: Rows = []
    for c, updates in enumerate(UPDATES):
        samples = np.stack([arm.judged[:, c, 0] for arm in arms], axis=1)
        added, at = choice_variance(samples), kept | {"updates": updates}
        for s, size in enumerate(sizes):
            ends = float(np.isin(arms[s].chosen[:, c], (0, len(POWERS[settings["problem"]]) - 1)).mean())
            facts = {"arm": f"always {size}", "share": float(share[s]), "at_end": ends, "prediction": np.nan}
            table.append(at | {"quantity": "success"} | facts | tuned_summary(samples[:, s], added))
        best = best_by_others(samples, FOLDS)
        top = at | {"quantity": "success", "arm": BEST, "size": _words(sizes, best), "prediction": np.nan}
        table.append(top | tuned_summary(along(samples, best), added))
        against = {BEST: best} | {f"always {size}": np.full(FOLDS, sizes.index(size)) for size in HABITS}
        choices = pilots | {f"always {size}": np.array([s]) for s, size in enumerate(sizes)}
        for other, places in against.items():
            for arm in choices:
                facts = {"quantity": "lost", "arm": arm, "against": other, "size": _words(sizes, places), "prediction": LOST}
                table.append(at | facts | lost(samples, places, choices[arm], added))
    spread = summary(np.log2(np.array(asked[PLANNED], dtype=float)))
    return [*table, kept | {"quantity": "log2 recommended", "arm": PLANNED, "prediction": np.nan} | spread]


def _words(sizes: list[int], places: Integers) -> str:
    """Return the sizes at places, such as "2 or 4"."""
    return " or ".join(f"{sizes[place]}" for place in np.unique(places))


def lost(samples: Array, against: Integers, chosen: Integers, added: float) -> dict[str, float]:
    """Return the success that choices of a column lose against others, with the errors of runs, learning rates and pilots.

    Parameters
    ----------
    samples : ndarray, shape (R, S)
        Success of runs, by group size.
    against : ndarray of int, shape (FOLDS,)
        The column that each share of the runs is compared with.
    chosen : ndarray of int, shape (P,)
        The column that each pilot led to.
    added : float
        The variance that one choice of a learning rate adds.
    """
    places = np.arange(samples.shape[1])
    share = (chosen[:, None] == places).mean(axis=0)
    sample = along(samples, against) - samples @ share
    rates = float((((against[:, None] == places) - share) ** 2).sum(axis=1).mean()) * added / FOLDS
    pilots = samples.mean(axis=0)[chosen]
    if not sample.any():  # one size against itself
        return {"estimate": 0.0, "standard_error": 0.0, "replications": len(samples)}
    between = Part(float(pilots.var(ddof=1)) / len(pilots), len(pilots) - 1.0) if len(pilots) > 1 else Part(0.0)
    return summary_of(float(sample.mean()), (of_runs(sample), Part(rates), between))


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge what the recommended size loses, and what it gains over groups of 4, on average over the problems."""
    found = table[table["quantity"] == "lost"]
    for estimator in ESTIMATORS:
        for updates in UPDATES:
            setting = f"{len(NAMES)} problems, {estimator}, {updates} updates"
            wanted = {"estimator": estimator, "updates": updates}
            for against, statement in STATEMENTS.items():
                arms = PLANNED, BROKEN[against]
                own, control = (mean_over_problems(found, wanted | {"arm": arm, "against": against}) for arm in arms)
                yield statement.claim(setting, own, control)
            planned = wanted | {"arm": PLANNED}
            own, control = (gained(found, planned | {"against": f"always {size}"}) for size in (HABITS[0], HABITS[-1]))
            yield NO_GAIN.claim(setting, own, control)


def gained(table: pd.DataFrame, wanted: Mapping[str, object]) -> Evidence:
    """Return the evidence of what rows of losses gain."""
    found = mean_over_problems(table, wanted)
    return Evidence(-found.estimate, LOST, found.standard_error, replications=found.replications)
