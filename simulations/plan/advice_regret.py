"""P1: does advice from a pilot at the start survive whole runs?  Success at the end that its group size loses.

Each group size trains at its own best learning rate, which other runs chose.  The planner sees a pilot of 64 prompts with 8
responses each, drawn from the first policy.  Broken, the learning rate of the recommended size's runs is 0.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Statement
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from grpo_theory.plan import Limits, choose_group_size
from grpo_theory.plan.efficiency import choose_by_efficiency
from grpo_theory.plan.estimator_advice import EstimatorLaws
from simulations.plan.problem_means import mean_over_problems
from simulations.plan.run_worlds import CHAIN_OF_TWELVE, LINEAR, WIDTHS, courses, draw_log, problem, sampler
from simulations.runs.arms import quietly
from simulations.runs.tuning import Tuned, choice_variance, tuned, tuned_summary
from simulations.seeds import child_seed, seed_of
from simulations.sources import OURS

PAGE = "docs/planner.md"
LOST = 0.02
"""Points of success at the end that are worth less than the pilot and the reading of its plan."""
STATEMENTS = {
    against: Statement(
        f"plan/run/{against}",
        PAGE,
        f"at the end of a run, the group size recommended from a pilot at the start has at most 2 points of success less than "
        f"{text}, on average over problems",
        "upper bound",
        whose=OURS,
    )
    for against, text in (
        ("best", "the best in hindsight"),
        ("always 8", "groups of 8"),
        ("always 16", "groups of 16"),
    )
}

ESTIMATORS = ("rloo", "grpo")
RESPONSES, PILOT, LOGGED, LEVEL = 256, 64, 8, 0.95
SIZES, QUICK_SIZES = (2, 4, 8, 16, 64), (4, 8, 16)
UPDATES = (16, 64)
"""Of a short and a long run, 4,096 and 16,384 responses."""
POWERS = {name: range(2, 7) for name in WIDTHS} | {LINEAR: range(2, 7), CHAIN_OF_TWELVE: range(-2, 4)}
"""The learning rates are these powers of 3."""
NAMES = tuple(POWERS)
TUNING_RUNS, RUNS, QUICK_RUNS, PILOTS, QUICK_PILOTS = 16, 64, 16, 32, 4


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
        return {"recommended": recommended(settings, np.random.default_rng(child_seed(seed_of(rng), chunk)))}
    case, size = problem(settings["problem"]), settings["sizes"][chunk]

    def trained(rate: float, budgets: int, runs: int, seed: np.random.SeedSequence) -> Array:
        starts, sizes = np.tile(case.theta, (runs, 1)), (RESPONSES // size, size)
        success = courses(case, starts, settings["estimator"], rate, sizes, UPDATES[:budgets], seed)[0]
        # A run that left the numbers has nothing left.
        return np.nan_to_num(success, nan=0.0)[..., None]

    rates = [3.0**power for power in POWERS[settings["problem"]]]
    found = tuned(trained, len(UPDATES), rates, (settings["tuning_runs"], settings["runs"]), seed_of(rng))
    return {name: values.tolist() for name, values in found._asdict().items()}


def recommended(settings: Settings, rng: np.random.Generator) -> list[int]:
    """Return the group size that is recommended from each pilot: the nearest of those trained, in octaves."""
    case = problem(settings["problem"])
    drawn, sizes = sampler(case, case.theta), np.array(settings["sizes"])
    nearest = []
    for _ in range(settings["pilots"]):
        prompts = rng.choice(case.policy.n_prompts, PILOT, p=case.bandit.prompt_weights)
        asked = plan(draw_log(drawn, prompts, LOGGED, rng), settings["estimator"], int(sizes.max()))
        nearest.append(int(sizes[np.abs(np.log2(sizes / asked)).argmin()]))
    return nearest


def plan(log: gt.RaggedRollouts, estimator: str, largest: int) -> int:
    """Return the group size that the planner recommends to who names the estimator."""
    limits = Limits(budget=RESPONSES, max_group_size=largest)
    if estimator == "rloo":
        return choose_group_size(log, limits, LEVEL).group_size
    law = EstimatorLaws(log, limits, None).of(gt.estimators()[estimator])
    assert law is not None
    return choose_by_efficiency(law, Limits(budget=RESPONSES, max_group_size=LOGGED).batches()[1], LEVEL).group_size


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Success at the end by group size, and what the recommended one loses to the best, to 8 and to 16."""
    *trained, asked = results
    arms = [Tuned(*(np.array(one[name]) for name in Tuned._fields)) for one in trained]
    sizes, share = settings["sizes"], np.array([np.mean(np.equal(asked["recommended"], size)) for size in settings["sizes"]])
    kept = {name: settings[name] for name in ("problem", "estimator", "pilots")}
    table: Rows = []
    case = problem(settings["problem"])
    start = gt.objective(case, case.theta)
    for c, updates in enumerate(UPDATES):
        samples = np.stack([arm.judged[:, c, 0] for arm in arms], axis=1)
        added, at = choice_variance(samples), kept | {"updates": updates}
        for s, size in enumerate(sizes):
            ends = float(np.isin(arms[s].chosen[:, c], (0, len(POWERS[settings["problem"]]) - 1)).mean())
            facts = {"arm": f"always {size}", "share": float(share[s]), "at_end": ends, "prediction": np.nan}
            table.append(at | {"quantity": "success"} | facts | tuned_summary(samples[:, s], added))
        best = int(np.argmax([arm.tuning[arm.chosen[:, c], c].mean() for arm in arms]))
        for against, place in {"best": best, **{f"always {size}": sizes.index(size) for size in (8, 16)}}.items():
            for arm, mine in (("planned", samples), ("control", np.full_like(samples, start))):
                weights = np.eye(len(sizes))[place] - share
                lost = samples[:, place] - mine @ share
                facts = {"arm": arm, "against": against, "size": sizes[place], "prediction": LOST}
                table.append(at | {"quantity": "lost"} | facts | tuned_summary(lost, float((weights**2).sum()) * added))
        for size in (8, 16):
            lost = samples[:, best] - samples[:, sizes.index(size)]
            facts = {"arm": f"always {size}", "against": "best", "size": sizes[best], "prediction": np.nan}
            table.append(at | {"quantity": "lost"} | facts | tuned_summary(lost, 2.0 * added * (sizes[best] != size)))
    spread = summary(np.log2(np.array(asked["recommended"], dtype=float)))
    return [*table, kept | {"quantity": "log2 recommended", "arm": "planned", "prediction": np.nan} | spread]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge what the recommended size loses, on average over the problems."""
    lost = table[table["quantity"] == "lost"]
    for estimator in ESTIMATORS:
        for updates in UPDATES:
            for against, statement in STATEMENTS.items():
                wanted = {"estimator": estimator, "updates": updates, "against": against}
                own, control = (mean_over_problems(lost, wanted | {"arm": arm}) for arm in ("planned", "control"))
                yield statement.claim(f"{len(NAMES)} problems, {estimator}, {updates} updates", own, control)
