"""U9: the best group size for a language model's head.

Figure 5 and Table 2 of arXiv 2603.01162 are redone on the head of SmolLM2. The group sizes reported as best are compared with the
gradient's own. The control is the largest group size at the smallest budget, 8 prompts in a batch, which loses ten times as much.
"""

from functools import cache

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.reading import difference
from grpo_theory.harness import check, run
from grpo_theory.theory import noise_free_path, noise_free_slopes
from simulations.seeds import seed_of
from simulations.statements import stated
from simulations.training.controlled import Guide, losses, objectives_by_group_size
from simulations.training.grid import on_grid

PROBLEM = "lm-few-shot"
STEP, SCHEDULE = 0.005, "Constant(0.005)"
BUDGET = 1024
GROUP_SIZES = (2, 4, 8, 16, 32, 64, 128)
CHECKPOINTS = (1, 2, 4, 6, 8, 12)
REPORTED = 32
"""Figure 5's best group size, at all its checkpoints but the first."""
TABLE = {1024: 64, 2048: 64, 4096: 128}
"""Table 2's best group size for each budget."""
TABLE_STEPS, OWN = 2, 4
"""The larger budgets are trained for fewer steps, with the reported group size and with that of the gradient's least error."""
CHUNKS, CHUNK_RUNS, QUICK_RUNS = 10, 16, 32
REPORTS = stated("U9/reported", "U9/reported, Table 2")
WHERE = "{problem}, {schedule}, N = {budget}, n = {checkpoint}"


def cases(quick):
    """Figure 5, and each larger budget of Table 2; quick takes one of them."""
    budgets = list(TABLE)[: 2 if quick else None]
    return [{"problem": PROBLEM, "schedule": SCHEDULE, "quick": quick, "budget": budget} for budget in budgets]


def at_checkpoints(quick):
    """The same at every checkpoint."""
    return [case | {"checkpoint": n} for case in cases(quick) for n in grid(case["budget"], quick)[1]]


def grid(budget, quick):
    """Return the group sizes and the checkpoints of a budget; quick takes three group sizes."""
    if budget > BUDGET:
        return [OWN, TABLE[budget]], [TABLE_STEPS]
    return ([OWN, REPORTED, 4 * REPORTED], list(CHECKPOINTS[:3])) if quick else (list(GROUP_SIZES), list(CHECKPOINTS))


def asked(budget, quick, at="own", **_):
    """Return the settings of the runs of a budget, or of the smallest, and the number of chunks."""
    budget = BUDGET if at == "smallest" else budget
    sizes, checkpoints = grid(budget, quick)
    about = {"problem": PROBLEM, "step": STEP, "budget": budget, "group_sizes": sizes, "checkpoints": checkpoints}
    return about | {"runs": QUICK_RUNS if quick else CHUNK_RUNS}, 1 if quick else CHUNKS


@cache
def noise_free_run(name, step, checkpoints):
    """Return the problem, its noise-free path and the slopes of every checkpoint."""
    problem = gt.gallery.problem(name)
    steps = np.full(checkpoints[-1], step)
    path = noise_free_path(problem, problem.theta, steps)
    return problem, path, [noise_free_slopes(problem, path[: n + 1], steps[:n]) for n in checkpoints]


@run(dealt=asked)
def trained(rng, **settings):
    """Train with every group size; return the objective and its control."""
    checkpoints = tuple(settings["checkpoints"])
    problem, _, slopes = noise_free_run(settings["problem"], settings["step"], checkpoints)
    steps = np.full(checkpoints[-1], settings["step"])
    return objectives_by_group_size(problem, [Guide(one) for one in slopes], steps, settings, seed_of(rng))


def measured(found, budget, quick):
    """Return the losses against the noise-free run, by checkpoint and group size."""
    sizes, checkpoints = grid(budget, quick)
    problem, path, _ = noise_free_run(PROBLEM, STEP, tuple(checkpoints))
    return losses(found, sizes, {n: float(gt.objective(problem, path[n])) for n in checkpoints})


@check(*REPORTS, of=trained, cases=at_checkpoints, each={"at": ("own", "smallest")}, broken={"worst": True}, setting=WHERE)
def reported(found, budget, checkpoint, quick, worst=False):
    """The group sizes reported as best against the gradient's own; broken: the largest at the smallest budget."""
    at, smallest = (measured(found[one], size, quick) for one, size in (("own", budget), ("smallest", BUDGET)))
    problem, path, _ = noise_free_run(PROBLEM, STEP, tuple(grid(budget, quick)[1]))
    at, smallest = at.loc[checkpoint], smallest.loc[checkpoint]
    own = on_grid(gt.group_size_law(problem, path[checkpoint]).optimum, at.index)
    facts, sides = {"G of the gradient's least error": float(own)}, {}
    if budget == BUDGET:
        sides["U9/reported"] = REPORTED, facts
    if checkpoint == TABLE_STEPS and TABLE[budget] in at.index:
        sides["U9/reported, Table 2"] = TABLE[budget], facts | {"G reported": float(TABLE[budget])}
    control = smallest.loc[smallest.index.max()]
    return {name: (difference(control if worst else at.loc[size], at.loc[own]), beside) for name, (size, beside) in sides.items()}
