"""Predictions in closed form."""

from grpo_theory.theory.baseline import baseline_trace as baseline_trace
from grpo_theory.theory.group_size import GroupSizeLaw as GroupSizeLaw
from grpo_theory.theory.group_size import group_size_law as group_size_law
from grpo_theory.theory.leave_one_out import break_even_group_size as break_even_group_size
from grpo_theory.theory.leave_one_out import leave_one_out_covariance as leave_one_out_covariance
from grpo_theory.theory.leave_one_out import leave_one_out_parts as leave_one_out_parts
from grpo_theory.theory.leave_one_out import leave_one_out_traces as leave_one_out_traces
from grpo_theory.theory.leave_one_out import own_mean_mse as own_mean_mse
from grpo_theory.theory.leave_one_out import remainder_bound as remainder_bound
from grpo_theory.theory.limit_law import Linearisation as Linearisation
from grpo_theory.theory.limit_law import gap_recursion as gap_recursion
from grpo_theory.theory.limit_law import limit_covariance as limit_covariance
from grpo_theory.theory.limit_law import limit_law as limit_law
from grpo_theory.theory.limit_law import linearise as linearise
from grpo_theory.theory.optimum import check_optimum as check_optimum
from grpo_theory.theory.optimum import find_optimum as find_optimum
from grpo_theory.theory.training_law import TrainingLaw as TrainingLaw
from grpo_theory.theory.training_law import noise_free_path as noise_free_path
from grpo_theory.theory.training_law import noise_free_slopes as noise_free_slopes
from grpo_theory.theory.training_law import training_law as training_law
from grpo_theory.theory.weighted_chi_square import WeightedChiSquare as WeightedChiSquare
