"""T6 to T8 along training: where updates off policy point, and what clip and ratio are worth to whole runs.

The policies are those that minibatch training makes. Most settings have a kind of problem, with one run on each of many problems
drawn from it, which are the sample. Some have one problem, whose runs are the sample. Each arm has the best of the constant steps
tried, or twice or four times that, the same for all problems. In the controls advantages have lost their sign, or an arm stays at
its start. A first run on other draws was replaced because fixed problems took too long, and not for what it found.
"""

from grpo_theory.harness import check, rows, run
from simulations.sequence.off_policy import Pairs
from simulations.statements import stated
from simulations.training.looks import ARMS, NEARER, POINTED, ahead, ends, of_arm, where_updates_point
from simulations.training.worlds import WORLDS

ENDINGS = {"best": "trained", "twice": "twice the step", "four times": "four times the step"}
"""How often an arm's own best step is doubled: nobody knows a learning rate to better than a factor of two."""
BEYOND = len(ENDINGS) - 1
ENDS = {
    f"{name}, {ending}": (arm, other, doublings)
    for arm, other, name in (("clip", "none", "T8/dropped"), ("none", "clip", "T8/clip"))
    for doublings, ending in enumerate(ENDINGS.values())
}
"""By how little an arm is ahead of another, where whole runs end at each step size."""
BATCH_SIZE, GROUP_SIZE = 16, 8
SHORT = 16
"""Runs of more rollouts are Adam's alone: they take four to sixteen times as long."""


def cases(quick):
    """Worlds, lengths of runs, updates a rollout and optimisers; quick has one."""
    if quick:
        return [{"world": "two", "rollouts": 16, "inner_steps": 16, "optimiser": "Adam", "units": 64}]
    return [
        {"world": name, "rollouts": rollouts, "inner_steps": inner, "optimiser": optimiser, "units": world.units}
        for name, world in WORLDS.items()
        for rollouts, minibatches in world.minibatches.items()
        for inner in minibatches
        for optimiser in (world.centres if rollouts <= SHORT else ["Adam"])
    ]


def steps_of(world, optimiser, inner_steps):
    """Return the steps, and how many of them are tried: the others are beyond."""
    steps = WORLDS[world].steps(optimiser, inner_steps, BEYOND)
    return {"steps": steps, "tried": len(steps) - BEYOND}


def asked(world, optimiser, inner_steps, **case):
    """Return the settings of the runs, a chunk for each arm."""
    sizes = {"batch_size": BATCH_SIZE, "group_size": GROUP_SIZE, "runs": WORLDS[world].runs, "inner_steps": inner_steps}
    about = {"world": world, "arms": list(ARMS), "optimiser": optimiser}
    return case | about | sizes | steps_of(world, optimiser, inner_steps), len(ARMS)


def label(world, rollouts, inner_steps, optimiser, units):
    """Return what the problems are, and how they are trained on."""
    return f"{WORLDS[world].label(units)}, {rollouts} rollouts, {optimiser}, m = {inner_steps}"


@run(dealt=asked, shared=True)
def trained(rng, chunk, **settings):
    """Train an arm at each step of the grid, on problems and draws that all arms share, and look at updates on the way."""
    return of_arm(settings, WORLDS[settings["world"]].make, settings["units"] // settings["runs"], Pairs, rng, chunk)


@check(*stated(*POINTED, NEARER), of=trained, cases=cases, broken={"looked": "broken"}, setting=label)
def pointing(found, looked=""):
    """Shares of updates that point away, and who points nearer to the gradient; broken: advantages that lost their sign."""
    return where_updates_point(found, looked)


@check(*stated(*ENDS), of=trained, cases=cases, broken={"rival": "start"}, setting=label)
def ending(found, world, optimiser, inner_steps, rival=""):
    """By how much one arm is ahead at the end; broken: of runs that stay at the start."""
    return ends(found, **steps_of(world, optimiser, inner_steps), who=ENDS, rival=rival)


@rows(of=trained, cases=cases)
def seen(found, world, optimiser, inner_steps):
    """What the looks said, and by how much one arm is ahead of the other."""
    yield from found["looks"]
    tried = steps_of(world, optimiser, inner_steps)["tried"]
    for arm, other, doublings in ENDS.values():
        about = {"quantity": "ahead", "at": list(ENDINGS)[doublings], "arm": arm, "rival": other}
        yield about | ahead(found, tried, arm, other, doublings)
