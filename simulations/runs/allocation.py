"""P3, P4: responses shared out among prompts, in whole runs at an equal number of responses.

Each rule trains at its own best constant step, which other runs chose, several times over. In the control the rule's runs are
stopped at a quarter of the responses.
"""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Statement
from grpo_theory.evidence.reading import evidence
from grpo_theory.exact import StabilityWarning
from grpo_theory.harness.study import Cell, Rows, Settings
from simulations.runs.allocation_places import BATCH, CHECKPOINTS, GROUP, RATES, RULES, TITLES, WORLDS, rates_of
from simulations.runs.tuning import Tuned, choice_variance, tuned, tuned_summary
from simulations.seeds import seed_of
from simulations.sources import OURS, derived

AT_BEST = "leave-one-out, 16 prompts of 8 responses on average, constant steps, each rule at its best, chosen on other runs"
VIP_RUNS = Statement(
    "P3/whole runs",
    "question beside arXiv 2602.01601",
    "sizes by the printed variance at the policy reached train a better policy than equal sizes",
    "ordering",
    AT_BEST,
    whose=OURS,
)
START_RUNS = Statement(
    "P3/whole runs, rates of the start",
    "question beside arXiv 2602.01601",
    "sizes by the printed variance at the start train a better policy than equal sizes",
    "ordering",
    AT_BEST,
    whose=OURS,
)
SEEN_RUNS = Statement(
    "P3/whole runs, seen rates",
    "question beside arXiv 2602.01601",
    "sizes by the printed variance with the rates that the run has seen train a better policy than equal sizes",
    "ordering",
    AT_BEST,
    whose=OURS,
)
SGPO_RUNS = Statement(
    "P4/sGPO, whole runs",
    "question beside sGPO",
    "sizes as 1/p, p at the start, train a better policy than equal sizes",
    "ordering",
    AT_BEST,
    formula="Sizes as $1/p$, with $p$ at the start, train a better policy than equal sizes.",
    whose=OURS,
)
DYNAMO_RUNS = Statement(
    "P4/DynaMO, whole runs",
    "question beside arXiv 2602.19208",
    "sizes as the standard deviation of the reward train a better policy than equal sizes",
    "ordering",
    AT_BEST,
    whose=OURS,
)
ERROR_DECIDES = Statement(
    "allocation/error decides",
    derived(33),
    "the sizes of least error at each step train a better policy than sizes as 1/p, whose steps have several times the error",
    "ordering",
    AT_BEST,
    formula="The sizes of least error at each step train a better policy than sizes as $1/p$, whose steps have several times the "
    "error.",
    whose=OURS,
)
ERROR_DECIDES_NOW = Statement(
    "allocation/error decides, rates of now",
    derived(33),
    "the sizes of least error at each step train a better policy than sizes as 1/p with p of the policy reached",
    "ordering",
    AT_BEST,
    formula="The sizes of least error at each step train a better policy than sizes as $1/p$ with $p$ of the policy reached.",
    whose=OURS,
)

OPTIMISERS: Mapping[str, gt.Optimiser] = {"SGD": gt.SGD(), "Adam": gt.Adam()}
TUNING_RUNS, QUICK_RUNS = 64, 64
RUNS = {"tabular": 256, "shared": 1024}
"""Where prompts share features rules differ by a point or two of success, a fifth of what two runs do: that takes more runs."""
AGAINST_EQUAL = {
    "vip": VIP_RUNS,
    "vip_seen": SEEN_RUNS,
    "vip, start": START_RUNS,
    "dynamo": DYNAMO_RUNS,
    "sgpo": SGPO_RUNS,
}
RARE_FIRST = {"sgpo": ERROR_DECIDES, "sgpo, now": ERROR_DECIDES_NOW}


def cells(quick: bool) -> list[Cell]:
    """One cell for each world and optimiser; a quick run has one world and fewer runs."""
    return [
        Cell({"world": world, "optimiser": name, "runs": QUICK_RUNS if quick else RUNS[world], "tuning_runs": TUNING_RUNS})
        for world, name in list(RATES)[: 1 if quick else None]
    ]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Train with each rule; return the success of each run at the checkpoints, and what was tried and chosen."""
    problem, optimiser = WORLDS[settings["world"]].problem(), OPTIMISERS[settings["optimiser"]]
    # Grids reach from steps that hardly learn to steps that are too large, which is what the warning says.
    warnings.filterwarnings("ignore", category=StabilityWarning, module=__name__.replace(".", r"\."))
    by_rule: dict[str, Any] = {}
    for name, rule in RULES.items():

        def train(rate: float, budgets: int, runs: int, seed: np.random.SeedSequence, rule: gt.AllocationRule = rule) -> Array:
            made = gt.simulate_training(
                problem,
                problem.theta,
                "rloo",
                gt.Constant(rate),
                batch_size=BATCH,
                group_size=GROUP,
                steps=CHECKPOINTS[budgets - 1],
                replications=runs,
                rng=seed,
                workers=1,
                optimiser=optimiser,
                checkpoints=CHECKPOINTS[:budgets],
                allocation=rule,
            )
            return np.nan_to_num(made.objectives)[..., None]

        runs = settings["tuning_runs"], settings["runs"]
        by_rule[name] = _told(tuned(train, len(CHECKPOINTS), rates_of(settings), runs, seed_of(rng)))
    return by_rule


def _told(result: Tuned) -> dict[str, Any]:
    return {"judged": result.judged[..., 0].tolist(), "tuning": result.tuning.tolist(), "chosen": result.chosen.tolist()}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Success of each rule at the checkpoints, and by how much equal sizes, and sizes as 1/p, are ahead of it."""
    (run,) = results
    rates = np.array(rates_of(settings))
    judged = {name: np.array(one["judged"]) for name, one in run.items()}
    common = {"world": settings["world"], "optimiser": settings["optimiser"], "prediction": np.nan}
    table: Rows = []
    added = [choice_variance(np.stack([success[:, c] for success in judged.values()], axis=1)) for c in range(len(CHECKPOINTS))]
    for name, success in judged.items():
        tuning, chosen = np.array(run[name]["tuning"]), np.array(run[name]["chosen"])
        for c, updates in enumerate(CHECKPOINTS):
            about = common | {"rule": name, "responses": updates * BATCH * GROUP}
            about |= {"rate": float(np.exp(np.log(rates[chosen[:, c]]).mean()))}
            about |= {"interior": bool(0 < tuning[:, c].argmax() < len(rates) - 1)}
            table.append(about | {"quantity": "success"} | tuned_summary(success[:, c], added[c]))
            for rival in ("uniform", *RARE_FIRST):
                ahead = judged[rival][:, c] - success[:, c]
                table.append(about | {"quantity": f"{rival} ahead"} | tuned_summary(ahead, 2.0 * added[c]))
                early = judged[rival][:, c] - success[:, 0] if c else judged[rival][:, c] - _start(settings)
                table.append(about | {"quantity": f"{rival} ahead, stopped early"} | tuned_summary(early, 2.0 * added[c]))
    return table


def _start(settings: Settings) -> float:
    problem = WORLDS[settings["world"]].problem()
    return float(gt.objective(problem, problem.theta))


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """By how much equal sizes are ahead of each rule's at the end; the control's rule has a quarter of the responses, or none."""
    for (world, name, responses), part in table.groupby(["world", "optimiser", "responses"], sort=False):
        by = part.set_index(["quantity", "rule"])
        where = f"{TITLES[world]}, {name}, {responses:,} responses"

        def told(statement: Statement, rival: str, rule: str, by: pd.DataFrame = by, where: str = where) -> Claim:
            own, control = (
                evidence(by.loc[(quantity, rule)].to_dict(), 0.0)
                for quantity in (f"{rival} ahead", f"{rival} ahead, stopped early")
            )
            facts = {f"success, {one}": by.loc[("success", one), "estimate"] for one in (rival, rule)}
            facts |= {f"rate, {one}": by.loc[("success", one), "rate"] for one in (rival, rule)}
            return statement.claim(where, own, control, facts=facts)

        for rule, statement in AGAINST_EQUAL.items():
            yield told(statement, "uniform", rule)
        for rival, statement in RARE_FIRST.items():
            yield told(statement, rival, "neyman")
