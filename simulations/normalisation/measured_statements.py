"""What is printed of one model's gradients; heads in training decide it, and so do sampled answers."""

from grpo_theory.evidence import Margin, Statement
from simulations.sources import NORMALIZATION

WITHIN = Statement(
    "N9/within",
    NORMALIZATION,
    "the correlation of V_i and curvature over the prompts of an iteration is 0.34, give or take 0.1",
    "equality",
    measured=True,
    margin=Margin(0.1 / 0.34, "two correlations that differ by more than a tenth are not called the same"),
)
ORTHOGONAL_GRADIENTS = Statement(
    "N11/printed",
    NORMALIZATION,
    "at the start, half-way and at the end the share of |cos| < 0.1 is 97.7%, 80.3%, 52.4%, give or take a tenth",
    "equality",
    measured=True,
    margin=Margin(0.1, "a share of which the first digit holds would be read as the same finding"),
)
