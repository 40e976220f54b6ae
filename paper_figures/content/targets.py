"""What intervals are of, as figures write it."""

from grpo_theory.page.style import CONSTANTS


def symbol(target: str) -> str:
    """Return the name of a target for a figure: constants of the error law as symbols, the others as they are."""
    return CONSTANTS[target].label if target in CONSTANTS else target
