"""Small real data sets that ship with the package."""

from grpo_theory.data.long_answers import LongAnswers as LongAnswers
from grpo_theory.data.long_answers import long_answers as long_answers
from grpo_theory.data.questions import Arithmetic as Arithmetic
from grpo_theory.data.questions import arithmetic as arithmetic
