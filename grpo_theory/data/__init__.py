"""Small real data sets that ship with the package."""

from grpo_theory.data.arithmetic import Arithmetic as Arithmetic
from grpo_theory.data.arithmetic import arithmetic as arithmetic
