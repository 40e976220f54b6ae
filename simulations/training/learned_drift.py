"""T6 to T8, T14: where updates off policy point, and where runs end, if features are learned.  Networks of two layers on trees.

Minibatch training is as in `trained_drift`, with the drifts that it makes: one run on each of many random problems, which are the
sample. Each arm has the best of the constant steps tried, one for all problems, and its updates are examined along the run. The
gradients are those of both layers. In the controls advantages have lost their sign, or an arm stays at its start.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.evidence.reading import BoundedMean, evidence
from grpo_theory.harness.study import Cell, Rows, Settings
from simulations.best_rate import LEAD_FACTS, lead
from simulations.seeds import child_seed, seed_of
from simulations.sequence.off_policy import Pairs
from simulations.statements import stated
from simulations.training.drift_arms import ARMS, LOOKED
from simulations.training.looks import followed
from simulations.training.random_networks import NETWORKS

HEADS = {"clip": "T6", "trajectory": "T7", "none": "T8"}
POINTED = {arm: stated(f"{head}/trained, learned features") for arm, head in HEADS.items()}
UNCLIPPED, NEARER = stated("T6/unclipped, trained, learned features", "T8/nearer, trained, learned features")
ENDS = {
    ("clip", "none"): stated("T8/dropped, trained, learned features"),
    ("none", "clip"): stated("T8/clip, trained, learned features"),
    ("clip", "trajectory"): stated("T14/ends, learned features"),
    ("trajectory", "clip"): stated("T14/clip ends, learned features"),
}
"""By how little the first arm is ahead of the second at the end."""


AWAY, POINT = 0.05, 0.01
SIZES = {"batch_size": 16, "group_size": 8, "rollouts": 16, "inner_steps": 16, "runs": 1}
PROBLEMS, QUICK_PROBLEMS = 320, 32
"""At the level of a statement 200 can show a share of at most 5%."""
FACTS = {"success": "estimate", "step": "step"}
"""Columns of the table, by what the facts of a claim call them."""


class LearnedPairs(Pairs):
    """Pairs of policies of one problem whose features are learned: each current policy has derivatives of its own."""

    def __init__(self, problem: gt.Problem, theta: Array, behaviour: Array) -> None:
        logits, self.paths = problem.policy.logit_map.logits, problem.policy.paths
        self.tangents = [problem.policy.tangent(one) for one in theta]
        self.prompt_weights, self.success = problem.bandit.prompt_weights, problem.bandit.mean_reward
        self.now, self.old = (self.paths.log_probabilities(logits(vectors)) for vectors in (theta, behaviour))

    def _add_up(self, weights: Array) -> Array:
        covectors = self.paths.centre(self.paths.add_up(weights), np.exp(self.now))
        return np.stack([tangent.adjoint(one) for tangent, one in zip(self.tangents, covectors, strict=True)])


def cells(quick: bool) -> list[Cell]:
    """One cell for each kind of network, one chunk for each arm; quick has one."""
    common = SIZES | {"problems": QUICK_PROBLEMS if quick else PROBLEMS, "arms": list(ARMS)}
    grids = {name: {"steps": list(kind.steps), "tried": len(kind.steps)} for name, kind in NETWORKS.items()}
    return [
        Cell(common | {"network": name, "optimiser": kind.optimiser} | grids[name], len(ARMS), shared=True)
        for name, kind in list(NETWORKS.items())[: 1 if quick else None]
    ]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Train an arm at each step of the grid, on problems and draws that all arms share, and look at updates on the way."""
    running, looking = (child_seed(seed_of(rng), part) for part in range(2))
    problems = list(NETWORKS[settings["network"]].drawn(running, settings["problems"]))
    arm = ARMS[settings["arms"][chunk]]
    success, looks = followed(settings, arm, problems, LearnedPairs, np.random.default_rng(looking))
    starts = [float(gt.objective(problem, problem.theta)) for problem, _ in problems]
    return {"success": success.tolist(), "looks": looks, "starts": starts}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """What each arm reached, by how much one is ahead of another, and what the looks said."""
    runs = dict(zip(settings["arms"], results, strict=True))
    success = {arm: np.array(run["success"]) for arm, run in runs.items()} | {"start": np.array(results[0]["starts"])[None]}
    table: Rows = []
    for arm, run in runs.items():
        step = settings["steps"][success[arm].mean(axis=1).argmax()]
        table.append({"quantity": "success", "arm": arm, "step": step} | lead([success[arm]]))
        table += [{"arm": arm} | seen for seen in run["looks"] if seen["part"] == "all"]
    for arm, rival in (*ENDS, *((arm, "start") for arm in runs)):
        table.append({"quantity": "ahead", "arm": arm, "rival": rival} | lead([success[arm], success[rival]], (1.0, -1.0)))
    common = {"network": settings["network"], "optimiser": settings["optimiser"], "prediction": np.nan}
    return [common | row for row in table]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Shares of updates that point away, who points nearer to the gradient, and who is ahead at the end, by kind of network."""
    for (network, optimiser), part in table.groupby(["network", "optimiser"], sort=False):
        yield from _pointing(f"{network}, {optimiser}", part)
        yield from _ending(f"{network}, {optimiser}", part)


def _pointing(setting: str, part: pd.DataFrame) -> Iterator[Claim]:
    """Yield what the looks say along each arm's own runs; the control's updates have advantages that lost their sign."""
    rows = part[part["part"] == "all"].set_index(["arm", "quantity", "estimator"]).sort_index()

    def away(arm: str, estimator: str) -> Evidence:
        row = rows.loc[(arm, "away", estimator)]
        return BoundedMean(float(row["estimate"]), AWAY, replications=int(row["replications"]))

    for arm, statement in POINTED.items():
        facts = {f"mean cosine, {name}": float(rows.loc[(arm, "cosine", name), "estimate"]) for name in LOOKED}
        facts |= {name: float(rows.loc[(arm, name, ""), "estimate"]) for name in ("clipped", "log ratio")}
        yield statement.claim(setting, away(arm, arm), away(arm, "broken"), facts)
    yield UNCLIPPED.claim(setting, away("clip", "ratio"), away("clip", "broken"))
    own, control = (evidence(rows.loc[("clip", "less", name)].to_dict(), 0.0) for name in ("none", "broken"))
    yield NEARER.claim(setting, own, control)


def _ending(setting: str, part: pd.DataFrame) -> Iterator[Claim]:
    """Yield by how much one arm is ahead at the end; the control has runs that stay at the start behind it."""
    ahead = part[part["quantity"] == "ahead"].set_index(["arm", "rival"])
    success = part[part["quantity"] == "success"].set_index("arm")
    for (arm, other), statement in ENDS.items():
        own, control = (ahead.loc[(arm, rival)] for rival in (other, "start"))
        facts = {f"{name}, {one}": float(success.loc[one, column]) for name, column in FACTS.items() for one in (arm, other)}
        facts |= {fact: float(own[column]) for column, fact in LEAD_FACTS.items()}
        yield statement.claim(setting, evidence(own.to_dict(), POINT), evidence(control.to_dict(), POINT), facts)
