"""The coverage laboratory: any interval function, ours or a user's, on data of which the truth is known."""

from grpo_theory.laboratory.coverage_record import Coverage as Coverage
from grpo_theory.laboratory.coverage_record import replications_to_tell as replications_to_tell
from grpo_theory.laboratory.experiment import Experiment as Experiment
from grpo_theory.laboratory.experiment import Pilot as Pilot
from grpo_theory.laboratory.experiment import RecordedTraining as RecordedTraining
from grpo_theory.laboratory.measurement import CoverageGrid as CoverageGrid
from grpo_theory.laboratory.measurement import coverage as coverage
from grpo_theory.laboratory.measurement import coverage_grid as coverage_grid
from grpo_theory.laboratory.measurement import coverage_of_several as coverage_of_several
from grpo_theory.laboratory.measurement import replay as replay
from grpo_theory.laboratory.trial import Replay as Replay
