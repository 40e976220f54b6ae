"""Small real data sets that ship with the package."""

from grpo_theory.data.questions import Arithmetic as Arithmetic
from grpo_theory.data.questions import arithmetic as arithmetic
