"""Small real data sets that ship with the package."""

from grpo_theory.data.questions import Arithmetic, LongAnswers, arithmetic, long_answers
from grpo_theory.data.sampled import LongRollouts, SampledAnswers, long_rollouts, sampled_answers
from grpo_theory.data.trained import TrainedArm, TrainedCourse, TrainedModel, TrainedRun, trained_model

__all__ = ["Arithmetic", "LongAnswers", "LongRollouts", "SampledAnswers", "TrainedArm", "TrainedCourse", "TrainedModel"]
__all__ += ["TrainedRun", "arithmetic", "long_answers", "long_rollouts", "sampled_answers", "trained_model"]
__dir__ = __all__.copy
