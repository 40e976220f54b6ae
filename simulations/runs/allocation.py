"""P3, P4: responses shared out among prompts, in whole runs at an equal number of responses, over draws of two worlds.

Each rule has the best constant step of those tried, the same for all draws. Rules see the same draws. In the control the rule's
runs are stopped at a quarter of the responses.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.harness import check, rows, run
from grpo_theory.simulate.training import StepGrid
from simulations.best_rate import ahead, lead
from simulations.runs.allocation_step import SGPO_NOW, VIP_AT_START
from simulations.runs.arms import OPTIMISERS
from simulations.runs.worlds import World
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

BATCH, GROUP, LOW, HIGH = 16, 8, 2, 32
RULES = {
    name: rule.between(LOW, HIGH)
    for name, rule in (gt.allocation_rules() | {rule.name: rule for rule in (VIP_AT_START, SGPO_NOW)}).items()
}
WORLDS = {"tabular": World(prompts=32, dimension=0), "shared": World(prompts=32)}
"""Of 32 prompts, so that a run of 8,192 responses meets each of them sixteen times or so."""
TITLES = {"tabular": "no interference", "shared": "shared features"}
RATES = {
    ("tabular", "SGD"): (640.0, 4.0),
    ("tabular", "Adam"): (1.6, 4.0),
    ("shared", "SGD"): (32.0, 2.0),
    ("shared", "Adam"): (0.2, 2.0),
}
"""The least learning rate of the grid and the factor to the next.

Runs on 48 draws tried eight rates first. They began at a sixteenth of the least rate where prompts share nothing. They began at
half of it where prompts share features. The rates left out were best for no rule. Where prompts share nothing, no rate is too
large: success stops rising and does not fall. So it matters little which of the largest rates is best.
"""
STEPS_TRIED = 5
CHECKPOINTS = (16, 64)
"""Updates: 2,048 and 8,192 responses."""
DRAWS, QUICK_DRAWS, RUNS = 72, 6, 2
"""Draws of a world, numbers 0 to 71, and runs on each.

First runs had 48 draws of four runs, and 40 of six. At equal cost the report's limits are narrower with more draws.
"""
PAIRS = {
    "P3/whole runs": ("uniform", "vip"),
    "P3/whole runs, seen rates": ("uniform", "vip_seen"),
    "P3/whole runs, rates of the start": ("uniform", "vip, start"),
    "P4/DynaMO, whole runs": ("uniform", "dynamo"),
    "P4/sGPO, whole runs": ("uniform", "sgpo"),
    "allocation/error decides": ("sgpo", "neyman"),
    "allocation/error decides, rates of now": ("sgpo, now", "neyman"),
}
"""By statement, which rule is said to be behind which."""
POWERLESS = {
    (name, "shared features, *, 8,192 responses"): "where prompts share features sizes as 1/p are so far behind that, at so "
    "many draws, they are not certainly ahead of the sizes of least error after a quarter of the responses"
    for name, (_, rule) in PAIRS.items()
    if rule == "neyman"
}


def rates_of(world, optimiser):
    """Return the grid of learning rates."""
    least, factor = RATES[world, optimiser]
    return least * factor ** np.arange(STEPS_TRIED)


def cases(quick):
    """Each world and optimiser, at each number of responses; a quick run has one, and few draws."""
    sizes = {"draws": QUICK_DRAWS if quick else DRAWS, "runs": RUNS}
    places = list(RATES)[: 1 if quick else None]
    return [{"world": world, "optimiser": name, "updates": n} | sizes for world, name in places for n in CHECKPOINTS]


@run()
def trained(world, optimiser, draws, runs, rng):
    """Train with each rule at each learning rate; return the mean success of each draw's runs, and that of its start."""
    steps, found = np.ones(CHECKPOINTS[-1]), dict[str, list](start=[], **{name: [] for name in RULES})
    for draw in range(draws):
        problem, seed = WORLDS[world].problem(draw), child_seed(seed_of(rng), draw)
        found["start"].append(gt.objective(problem, problem.theta))
        for name, rule in RULES.items():
            rates, how = rates_of(world, optimiser), OPTIMISERS[optimiser]
            grid = StepGrid.of(problem, find("rloo"), rates, steps, (BATCH, GROUP), how, allocation=rule)
            found[name].append(np.nan_to_num(grid.objectives(runs, seed, CHECKPOINTS)).mean(axis=1))
    return {name: np.stack(own, axis=-1) for name, own in found.items()}  # (rates, checkpoints, draws)


@check(
    *stated(*PAIRS),
    of=trained,
    cases=cases,
    broken={"early": True},
    setting=lambda world, optimiser, updates, **_: f"{TITLES[world]}, {optimiser}, {updates * BATCH * GROUP:,} responses",
)
def leads(found, world, optimiser, updates, early=False):
    """By how much equal sizes, or as 1/p, are ahead; in the broken case the rule has a quarter of the responses, or none."""
    at = CHECKPOINTS.index(updates)
    end = {name: found[name][:, at] for name in RULES}
    less = {name: found[name][:, 0] if at else found["start"][None] for name in RULES} if early else end
    best = {name: rates_of(world, optimiser)[own.mean(axis=-1).argmax()] for name, own in end.items()}
    sides = {}
    for name, pair in PAIRS.items():
        facts = {f"success, {one}": lead([end[one]])["estimate"] for one in pair} | {f"rate, {one}": best[one] for one in pair}
        sides[name] = ahead(end[pair[0]], less[pair[1]], **facts)
    return sides


@rows(of=trained, cases=cases)
def successes(found, updates):
    """Success of each rule, for the figure."""
    for name in RULES:
        own = lead([found[name][:, CHECKPOINTS.index(updates)]])
        yield {"quantity": "success", "rule": name, "responses": updates * BATCH * GROUP} | own
