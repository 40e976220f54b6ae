"""T6 to T8, T14: where updates off policy point, and where runs end, if features are learned.  Networks of two layers on trees.

Minibatch training is as in `trained_drift`, with the drifts that it makes. Each arm has its own best constant step, chosen on
other problems, and its updates are examined along the run. The gradients are those of both layers. In the controls advantages
have lost their sign, or an arm descends.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Evidence, Statement
from grpo_theory.evidence.reading import BoundedMean, evidence
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from simulations.seeds import child_seed, seed_of
from simulations.sequence.off_policy import Pairs, cosines
from simulations.sources import OURS, TIC_GRPO
from simulations.training.arms import chosen_step, facts_of, paired
from simulations.training.drift_arms import ARMS, LOOKED, SEEN
from simulations.training.looks import LOOKS, summarised
from simulations.training.minibatch_trainer import MinibatchTrainer
from simulations.training.random_networks import NETWORKS


def learned(part: str, text: str, kind: str = "upper bound") -> Statement:
    """Return a question of ours about policies that training makes of networks."""
    return Statement(f"{part}, learned features", f"question beside {TIC_GRPO}", text, kind, WHERE, whose=OURS)


WHERE = "minibatch training of networks of two layers on trees of two tokens; best constant steps, chosen on other problems"
POINTED = {
    arm: learned(part, f"the mean update {what} points away from grad J(theta_k) in at most 5% of the updates off policy")
    for arm, part, what in (
        ("clip", "T6/trained", "with token ratios clipped by sign at 0.8 and 1.2"),
        ("trajectory", "T7/trained", "with the trajectory ratio, dropped above 1.2,"),
        ("none", "T8/trained", "without any ratio"),
    )
}
UNCLIPPED = learned(
    "T6/unclipped, trained",
    "in runs with the clip the mean update with token ratios that are not clipped points away from grad J(theta_k) in at most 5% "
    "of the updates off policy",
)
NEARER = learned(
    "T8/nearer, trained",
    "in runs with the clip the mean update without any ratio is nearer in direction to grad J(theta_k) than the clipped one",
    "ordering",
)
ENDS = {
    ("clip", "none"): learned("T8/dropped, trained", "without ratio success ends at most a point below that with the clip"),
    ("none", "clip"): learned("T8/clip, trained", "with the clip success ends at most a point below that without ratio"),
    ("clip", "trajectory"): learned(
        "T14/ends",
        "with the trajectory ratio, dropped above 1.2, success ends at most a point below that with token ratios clipped",
    ),
    ("trajectory", "clip"): learned(
        "T14/clip ends",
        "with token ratios clipped success ends at most a point below that with the trajectory ratio, dropped above 1.2",
    ),
}
"""By how little the first arm is ahead of the second at the end."""


AWAY, POINT = 0.05, 0.01
SIZES = {"batch_size": 16, "group_size": 8, "rollouts": 16, "inner_steps": 16}
COUNTS, QUICK_COUNTS = {"problems": 128, "tuning_problems": 12, "runs": 8}, {"problems": 8, "tuning_problems": 2, "runs": 2}


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
    common = SIZES | (QUICK_COUNTS if quick else COUNTS) | {"arms": list(ARMS)}
    names = list(NETWORKS)[: 1 if quick else None]
    return [
        Cell(
            common | {"network": name, "optimiser": NETWORKS[name].optimiser, "steps": list(NETWORKS[name].steps)},
            len(ARMS),
            shared=True,
        )
        for name in names
    ]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Find one arm's best step; train anew on other problems, on draws that all arms share; and look at updates on the way.

    The broken arm takes the middle of the grid.
    """
    seed = seed_of(rng)
    arm, grid, looking = settings["arms"][chunk], np.array(settings["steps"]), np.random.default_rng(child_seed(seed, 2))
    trainer, problems = MinibatchTrainer(settings, ARMS[arm]), list(_drawn(settings, child_seed(seed, 1), "problems"))
    if arm == "broken":
        return {"success": [trainer.success(problem, grid[[grid.size // 2]], own)[0].tolist() for problem, own in problems]}
    rehearsals = _drawn(settings, child_seed(seed, 0), "tuning_problems")
    tried = np.concatenate([trainer.success(problem, grid, own) for problem, own in rehearsals], axis=1)
    chosen = chosen_step(grid, -tried.mean(axis=1))
    success, looks = [], []
    for problem, own in problems:
        (iterates,) = trainer.iterates(problem, [chosen["step"]], own)
        looks.append(look(problem, iterates, settings["inner_steps"], looking))
        success.append(gt.objective(problem, iterates[:, -1]).tolist())
    return chosen | {"success": success, "looks": summarised(looks, list(LOOKED))}


def _drawn(settings: Settings, seed: np.random.SeedSequence, count: str) -> Iterator[tuple[gt.Problem, np.random.SeedSequence]]:
    """Draw problems, each with a seed for its runs."""
    for index in range(settings[count]):
        drawing, running = (child_seed(seed, index, part) for part in (0, 1))
        yield NETWORKS[settings["network"]].problem(np.random.default_rng(drawing)), running


def look(problem: gt.Problem, iterates: Array, inner: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return the cosines of mean updates with the gradient at some updates of each run, as `looks.look` where features stay."""
    runs, rollouts = len(iterates), (iterates.shape[1] - 1) // inner
    first = inner * rng.integers(0, rollouts, size=(runs, LOOKS))
    after = rng.integers(1, inner, size=(runs, LOOKS))
    run = np.arange(runs)[:, None]
    pairs = LearnedPairs(problem, *(iterates[run, at].reshape(runs * LOOKS, -1) for at in (first + after, first)))
    gradients, clip = pairs.gradients(), LOOKED["clip"]
    columns = {name: cosines(pairs.mean_updates(estimator), gradients) for name, estimator in LOOKED.items()}
    columns["broken"] = cosines(pairs.mean_updates(clip, sign_is_lost=True), gradients)
    columns |= {"clipped": pairs.clipped(clip), "log ratio": pairs.log_ratios()}
    return pd.DataFrame(columns | {"run": np.repeat(np.arange(runs), LOOKS)})


def rows(settings: Settings, results: list[Any]) -> Rows:
    """What each arm reached, by how much one is ahead of another, and what the looks said; problems are the sample."""
    runs = dict(zip(settings["arms"], results, strict=True))
    success = {arm: np.array(run["success"]).mean(axis=1) for arm, run in runs.items()}
    table: Rows = []
    for arm in SEEN:
        run = runs[arm]
        table.append(
            {"quantity": "success", "arm": arm, "step": run["step"], "interior": run["interior"]} | summary(success[arm])
        )
        table += [{"arm": arm} | seen for seen in run["looks"] if seen["part"] == "all"]
    for arm, rival in (*ENDS, *((arm, "broken") for arm in SEEN)):
        table.append({"quantity": "ahead", "arm": arm, "rival": rival} | summary(paired(success[arm], success[rival])))
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
        for column in ("clipped", "log ratio"):
            facts[column] = float(rows.xs((arm, column), level=("arm", "quantity"))["estimate"].iloc[0])
        yield statement.claim(setting, away(arm, arm), away(arm, "broken"), facts)
    yield UNCLIPPED.claim(setting, away("clip", "ratio"), away("clip", "broken"))
    own, control = (evidence(rows.loc[("clip", "less", name)].to_dict(), 0.0) for name in ("none", "broken"))
    yield NEARER.claim(setting, own, control)


def _ending(setting: str, part: pd.DataFrame) -> Iterator[Claim]:
    """Yield by how much one arm is ahead at the end; the control has the broken arm behind it."""
    ahead = part[part["quantity"] == "ahead"].set_index(["arm", "rival"])
    success = part[part["quantity"] == "success"].set_index("arm")
    for (arm, other), statement in ENDS.items():
        facts = facts_of(success.loc[[arm, other]], {"success": "estimate", "step": "step"})
        facts["best steps at an end of the grid"] = float((~success.loc[[arm, other], "interior"].astype(bool)).sum())
        own, control = (evidence(ahead.loc[(arm, rival)].to_dict(), POINT) for rival in (other, "broken"))
        yield statement.claim(setting, own, control, facts)
