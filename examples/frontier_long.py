"""P1, P2, P8, U9: the frontier of whole runs to 2^20 responses, in all worlds.

The same as the study `frontier` of the report, at a size that takes hours on two cores: run from a checkout with
``grpo-theory verify examples/frontier_long.py --out DIR``.  It goes on where it was stopped, and its chunks may be spread over
a cluster as those of any study.  Broken: as there.
"""

from itertools import product

from grpo_theory.harness.study import Cell
from simulations.runs import frontier, frontier_statements
from simulations.runs.arms import Arm
from simulations.runs.other_worlds import ALL

STATEMENTS, POWERLESS = frontier_statements.STATEMENTS, frontier_statements.POWERLESS
ESTIMATORS, MOST, QUICK_MOST = ("rloo", "grpo", "dropped"), 20, 18
OPTIMISERS = (("SGD", False), ("SGD", True), ("Adam", False))
BATCHES = (64, 512, 1024, 4096)
"""Responses of an update besides 256; from 512 on groups of 512 are among those tried."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each world, with each estimator and optimiser, and GRPO with other batches; quick has fewer responses."""
    most = QUICK_MOST if quick else MOST
    arms = [Arm(world, name, *optimiser) for world, name, optimiser in product(ALL, ESTIMATORS, OPTIMISERS)]
    arms += [Arm(world, responses=number) for world, number in product(ALL, BATCHES)]
    pairs = [(Arm(world, responses=32), most - 3, frontier.PAIR) for world in ALL]
    return frontier.cells_of([*((arm, most, frontier.LONG_SIZES) for arm in arms), *pairs])


simulate, rows, claims = frontier.simulate, frontier.rows, frontier.claims
