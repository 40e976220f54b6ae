"""P1, P2, P8, U9: the frontier of whole runs to 2^20 responses, in all worlds.

The same as the study `frontier` of the report, at a size that takes hours on two cores: run from a checkout with
``grpo-theory verify examples/frontier_long.py --out DIR``.  It goes on where it was stopped, and its chunks may be spread over
a cluster as those of any study.  Broken: as there.
"""

from dataclasses import replace
from functools import partial
from itertools import product

from simulations.runs import frontier
from simulations.runs.arms import Arm
from simulations.runs.worlds import ALL

P1, POWERLESS = frontier.P1, frontier.POWERLESS
ESTIMATORS, MOST, DRAWS, QUICK_MOST, QUICK_DRAWS = ("rloo", "grpo", "dropped"), 20, 24, 18, 12
OPTIMISERS = (("SGD", False), ("SGD", True), ("Adam", False))
BATCHES = (64, 512, 1024, 4096)
"""Responses of an update besides 256; from 512 on groups of 512 are among those tried."""


def plan(quick):
    """List arms of each world, with each estimator and optimiser, and GRPO with other batches; quick has fewer responses."""
    most, draws = (QUICK_MOST, QUICK_DRAWS) if quick else (MOST, DRAWS)
    arms = [Arm(world, name, *optimiser) for world, name, optimiser in product(ALL, ESTIMATORS, OPTIMISERS)]
    arms += [Arm(world, responses=number) for world, number in product(ALL, BATCHES)]
    pairs = [(Arm(world, responses=32), most - 3, frontier.PAIR, draws) for world in ALL]
    return [*((arm, most, frontier.LONG_SIZES, draws) for arm in arms), *pairs]


trained = replace(frontier.trained, deal=partial(frontier.deal, plan=plan))
leads, batch, pairs, ceiling, sharpens, covers, by_size = (
    replace(one, of=trained, cases=partial(one.cases, plan=plan))
    for one in (
        *(frontier.leads, frontier.batch, frontier.pairs, frontier.ceiling),
        *(frontier.sharpens, frontier.covers, frontier.by_size),
    )
)
