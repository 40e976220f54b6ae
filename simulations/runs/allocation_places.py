"""Where whole runs share out responses among prompts: worlds, learning rates, and rules that know sizes before they sample."""

from collections.abc import Mapping

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.harness.study import Settings
from simulations.runs.allocation_rules import SGPO_NOW, VIP_AT_START
from simulations.runs.worlds import World

BATCH, GROUP, LOW, HIGH = 16, 8, 2, 32
RULES = {
    name: rule.between(LOW, HIGH)
    for name, rule in (gt.allocation_rules() | {rule.name: rule for rule in (VIP_AT_START, SGPO_NOW)}).items()
}
WORLDS: Mapping[str, World] = {
    "tabular": World(prompts=32, dimension=0),
    "shared": World(prompts=32),
}
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


def rates_of(settings: Settings) -> Array:
    """Return the grid of learning rates of a cell."""
    least, factor = RATES[settings["world"], settings["optimiser"]]
    return np.asarray(least * factor ** np.arange(STEPS_TRIED))
