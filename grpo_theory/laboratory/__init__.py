"""The coverage laboratory: any interval function, ours or a user's, on data of which the truth is known."""

from grpo_theory.laboratory.coverage_record import Coverage, replications_to_tell
from grpo_theory.laboratory.experiment import Experiment, Pilot, RecordedTraining
from grpo_theory.laboratory.measurement import CoverageGrid, coverage, coverage_grid, coverage_of_several, replay
from grpo_theory.laboratory.trial import Replay

__all__ = ["Coverage", "CoverageGrid", "Experiment", "Pilot", "RecordedTraining", "Replay", "coverage", "coverage_grid"]
__all__ += ["coverage_of_several", "replay", "replications_to_tell"]
__dir__ = __all__.copy
