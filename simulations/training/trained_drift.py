"""T6 to T8 along training: where updates off policy point, and what clip and ratio are worth to whole runs.

The policies are those that minibatch training makes, each arm at its own best constant step, or at twice or four times that. In
the controls advantages have lost their sign, or an arm descends.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.evidence import Claim, Evidence, Statement
from grpo_theory.evidence.reading import BoundedMean, evidence
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from grpo_theory.simulate.training import finite_objectives
from simulations.seeds import child_seed, seed_of
from simulations.sources import OURS, TIC_GRPO
from simulations.training.arms import chosen_step, facts_of, paired
from simulations.training.drift_arms import ARMS, LOOKED, SEEN
from simulations.training.looks import look, summarised
from simulations.training.minibatch_trainer import MinibatchTrainer
from simulations.training.worlds import WORLDS, sampled

RUNS = "minibatch training on trees of two tokens, responses used once; each arm's best constant step, chosen on other seeds"
UPDATES = (
    "minibatch training on trees of two tokens, responses used once; the arm's best constant step, chosen on other seeds; "
    "updates that are not the first of their rollout"
)


def while_training(part: str, text: str, formula: str, kind: str = "upper bound", where: str = UPDATES) -> Statement:
    """Return a statement of ours about policies that training makes."""
    return Statement(part, f"question beside {TIC_GRPO}", text, kind, where, formula=f"{formula}.", whose=OURS)


POINTS_AWAY = "points away from grad J(theta_k) in at most 5% of the updates"
AWAY_OFF_POLICY = r"points away from $\nabla J(\theta_k)$ in at most $5\%$ of the updates off policy"
POINTED = {
    "clip": while_training(
        "T6/trained",
        f"the mean update with token ratios clipped by sign at 0.8 and 1.2 {POINTS_AWAY}",
        f"Along minibatch training: the mean update with token ratios clipped by sign at $0.8$ and $1.2$ {AWAY_OFF_POLICY}",
    ),
    "trajectory": while_training(
        "T7/trained",
        f"the mean update with the trajectory ratio, dropped above 1.2, {POINTS_AWAY}",
        f"Along minibatch training: the mean update with the trajectory ratio, dropped above $1.2$, {AWAY_OFF_POLICY}",
    ),
    "none": while_training(
        "T8/trained",
        f"the mean update without any ratio {POINTS_AWAY}",
        f"Along minibatch training: the mean update without any ratio {AWAY_OFF_POLICY}",
    ),
}
"""Where the mean update of each arm points along its own runs."""
LITTLE_CLIPPED = while_training(
    "T6/trained, little clipped",
    f"the mean update with token ratios clipped by sign {POINTS_AWAY} of which at most 2% of the tokens are clipped",
    r"The same, of the updates off policy in which at most $2\%$ of the tokens are clipped",
)
UNCLIPPED = while_training(
    "T6/unclipped, trained",
    f"in runs with the clip the mean update with token ratios that are not clipped {POINTS_AWAY}",
    f"Along the same runs: the mean update with token ratios that are not clipped {AWAY_OFF_POLICY}",
)
NEARER = while_training(
    "T8/nearer, trained",
    "in runs with the clip the mean update without any ratio is nearer in direction to grad J(theta_k) than the clipped one",
    r"In runs with the clip the mean update without any ratio is nearer in direction to $\nabla J(\theta_k)$ than the clipped "
    "one",
    "ordering",
)
TIMES = {"best": 1.0, "twice": 2.0, "four times": 4.0}
"""What an arm's own best step is multiplied by: nobody knows a learning rate to better than a factor of two."""
NAMES = {
    "best": ("trained", "at"),
    "twice": ("twice the step", "at twice"),
    "four times": ("four times the step", "at four times"),
}
AHEAD = {
    "clip": ("T8/dropped", "without ratio and clip success ends at most a point below that with token ratios clipped by sign"),
    "none": ("T8/clip", "with token ratios clipped by sign success ends at most a point below that without ratio and clip"),
}
"""By how little one of these two arms is ahead of the other, by the former."""
OTHER = {"clip": "none", "none": "clip"}
ENDS = {
    (arm, at): while_training(
        f"{name}, {ending}",
        f"{times} its best step each: {behind}",
        f"{times.capitalize()} its best constant step each: {behind}",
        where=RUNS,
    )
    for arm, (name, behind) in AHEAD.items()
    for at, (ending, times) in NAMES.items()
}
"""Where whole runs end at each step size."""

BATCH_SIZE, GROUP_SIZE = 16, 8
AWAY = 0.05
"""One update in twenty that points away, as far as the others point along, undoes a tenth of the way; fewer pass for noise."""
POINT = 0.01
"""One point of success at the end is less than two runs with other seeds differ by."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each world, length of runs, optimiser and updates a rollout, one chunk for each arm; quick has one."""
    if quick:
        return [_cell("two", 16, 16, "Adam")]
    return [
        _cell(name, rollouts, inner, optimiser)
        for name, world in WORLDS.items()
        for rollouts, minibatches in world.minibatches.items()
        for inner in minibatches
        for optimiser in world.centres
    ]


def _cell(name: str, rollouts: int, inner: int, optimiser: str) -> Cell:
    world = WORLDS[name]
    sizes = {"batch_size": BATCH_SIZE, "group_size": GROUP_SIZE, "rollouts": rollouts, "inner_steps": inner}
    problems = {"problems": world.problems, "tuning_problems": world.tuning_problems, "runs": world.runs}
    grid = {"optimiser": optimiser, "step_sizes": world.steps(optimiser, inner)}
    return Cell({"world": name, "arms": list(ARMS)} | sizes | problems | grid, len(ARMS), shared=True)


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Find one arm's best step; train anew on other problems, on draws that all arms share; and look at updates on the way.

    The broken arm takes the middle of the grid.
    """
    arm, grid, world = settings["arms"][chunk], np.array(settings["step_sizes"]), WORLDS[settings["world"]]
    tuning, judging, looking = (child_seed(seed_of(rng), part) for part in range(3))
    trainer, problems = MinibatchTrainer(settings, ARMS[arm]), list(world.drawn(judging, settings["problems"]))
    if arm == "broken":
        middle = grid[grid.size // 2]
        return {"success": {"best": [trainer.success(problem, [middle], own)[0].tolist() for problem, own in problems]}}
    rehearsals = world.drawn(tuning, settings["tuning_problems"])
    tried = np.concatenate([trainer.success(problem, grid, own) for problem, own in rehearsals], axis=1)
    chosen, chooser = chosen_step(grid, -tried.mean(axis=1)), np.random.default_rng(looking)
    step = chosen["step"]
    success: dict[str, list[list[float]]] = {name: [] for name in (TIMES if arm in AHEAD else ["best"])}
    looks, steps = [], [TIMES[name] * step for name in success]
    for problem, own in problems:
        iterates = trainer.iterates(problem, steps, own)
        looks.append(look(problem, iterates[0], settings["inner_steps"], LOOKED, chooser))
        for name, reached in zip(success, finite_objectives(problem, iterates[:, :, -1]), strict=True):
            success[name].append(reached.tolist())
    return chosen | {
        "tuning": [summary(sample) for sample in tried],
        "success": success,
        "looks": summarised(looks, list(LOOKED)),
    }


def rows(settings: Settings, results: list[Any]) -> Rows:
    """What each arm reached, by how much one is ahead of another, success at each step size, and what the looks said."""
    runs, world = dict(zip(settings["arms"], results, strict=True)), WORLDS[settings["world"]]
    table: Rows = []
    for arm in SEEN:
        run = runs[arm]
        tuning = zip(settings["step_sizes"], run["tuning"], strict=True)
        table += [{"quantity": "tuning", "arm": arm, "step": step} | tried for step, tried in tuning]
        for at, sample in run["success"].items():
            own = {"at": at, "step": TIMES[at] * run["step"], "interior": run["interior"]}
            table.append({"quantity": "success", "arm": arm} | own | summary(sampled(sample, world.alone)))
        table += [{"arm": arm, "at": "best"} | seen for seen in run["looks"]]
    for arm, at in ENDS:
        for rival, where in ((OTHER[arm], at), ("broken", "best")):
            ahead = sampled(paired(runs[arm]["success"][at], runs[rival]["success"][where]), world.alone)
            table.append({"quantity": "ahead", "at": at, "arm": arm, "rival": rival} | summary(ahead))
    title = world.title if world.alone else f"{settings['problems']} problems of {world.title}"
    common = {name: settings[name] for name in ("world", "rollouts", "inner_steps", "optimiser")}
    return [common | {"title": title, "prediction": np.nan} | row for row in table]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Shares of updates that point away, who points nearer to the gradient, and who is ahead at the end, by cell."""
    for keys, part in table.groupby(["title", "rollouts", "optimiser", "inner_steps"], sort=False):
        setting = "{}, {} rollouts, {}, m = {}".format(*keys)
        yield from _pointing(setting, part)
        yield from _ending(setting, part)


def _pointing(setting: str, part: pd.DataFrame) -> Iterator[Claim]:
    """Yield what the looks say along each arm's own runs; the control's updates have advantages that lost their sign."""
    rows = part[part["part"].isin(["all", "little clipped"])].set_index(["arm", "part", "quantity", "estimator"]).sort_index()

    def away(arm: str, among: str, estimator: str) -> Evidence:
        row = rows.loc[(arm, among, "away", estimator)]
        return BoundedMean(float(row["estimate"]), AWAY, replications=int(row["replications"]))

    for arm, statement in POINTED.items():
        facts = {f"mean cosine, {name}": float(rows.loc[(arm, "all", "cosine", name), "estimate"]) for name in LOOKED}
        for column in ("clipped", "log ratio"):
            facts[column] = float(rows.xs((arm, "all", column), level=("arm", "part", "quantity"))["estimate"].iloc[0])
        yield statement.claim(setting, away(arm, "all", arm), away(arm, "all", "broken"), facts=facts)
        if arm == "clip" and (arm, "little clipped", "away", arm) in rows.index:
            little = "little clipped"
            yield LITTLE_CLIPPED.claim(setting, away(arm, little, arm), away(arm, little, "broken"), facts=facts)
    yield UNCLIPPED.claim(setting, away("clip", "all", "ratio"), away("clip", "all", "broken"))
    own, control = (evidence(rows.loc[("clip", "all", "less", name)].to_dict(), 0.0) for name in ("none", "broken"))
    yield NEARER.claim(setting, own, control)


def _ending(setting: str, part: pd.DataFrame) -> Iterator[Claim]:
    """Yield by how much one arm is ahead at the end; the control has the broken arm behind it."""
    ahead = part[part["quantity"] == "ahead"].set_index(["arm", "at", "rival"])
    success = part[part["quantity"] == "success"].set_index(["arm", "at"])
    for (arm, at), statement in ENDS.items():
        own, control = (evidence(ahead.loc[(arm, at, rival)].to_dict(), POINT) for rival in (OTHER[arm], "broken"))
        both = success.xs(at, level="at").loc[[arm, OTHER[arm]]]
        facts = facts_of(both, {"success": "estimate", "step": "step"})
        facts["best steps at an end of the grid"] = float((~both["interior"].astype(bool)).sum())
        yield statement.claim(setting, own, control, facts=facts)
