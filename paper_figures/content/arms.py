"""The arms of whole runs, as the tables tell them apart and as figures name them."""

from typing import NamedTuple

from paper_figures.content.panels import WORDS


class Arm(NamedTuple):
    """The columns of a table that tell its arms apart, in their order; by default GRPO with plain, constant steps."""

    world: str
    estimator: str = "grpo"
    optimiser: str = "SGD"
    decaying: bool = False
    responses: int = 256


KEYS = list(Arm._fields)
WORLDS = WORDS["arms"]
ESTIMATORS = {"grpo": "GRPO", "rloo": "RLOO", "dropped": "GRPO without no-signal groups"}


def arm_title(arm: Arm) -> str:
    """Return the world and the estimator, and whatever else is not as usual."""
    words = [WORLDS.get(arm.world, arm.world), ESTIMATORS[arm.estimator]]
    words += [arm.optimiser] * (arm.optimiser != "SGD") + ["falling steps"] * arm.decaying
    words += [f"N = {arm.responses:,}"] * (arm.responses != Arm._field_defaults["responses"])
    return ", ".join(words)
