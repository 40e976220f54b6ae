"""Small real data sets that ship with the package."""

from grpo_theory.data.questions import Arithmetic as Arithmetic
from grpo_theory.data.questions import LongAnswers as LongAnswers
from grpo_theory.data.questions import arithmetic as arithmetic
from grpo_theory.data.questions import long_answers as long_answers
from grpo_theory.data.sampled import LongRollouts as LongRollouts
from grpo_theory.data.sampled import SampledAnswers as SampledAnswers
from grpo_theory.data.sampled import long_rollouts as long_rollouts
from grpo_theory.data.sampled import sampled_answers as sampled_answers
from grpo_theory.data.trained import TrainedArm as TrainedArm
from grpo_theory.data.trained import TrainedCourse as TrainedCourse
from grpo_theory.data.trained import TrainedModel as TrainedModel
from grpo_theory.data.trained import TrainedRun as TrainedRun
from grpo_theory.data.trained import trained_model as trained_model
