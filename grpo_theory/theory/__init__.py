"""Predictions in closed form."""

from grpo_theory.theory.baseline import baseline_trace as baseline_trace
from grpo_theory.theory.bounds import constant_step_bound as constant_step_bound
from grpo_theory.theory.bounds import harmonic_step_bound as harmonic_step_bound
from grpo_theory.theory.bounds import recursion_bound as recursion_bound
from grpo_theory.theory.group_size import GroupSizeLaw as GroupSizeLaw
from grpo_theory.theory.group_size import group_size_law as group_size_law
from grpo_theory.theory.group_size import mse_weights as mse_weights
from grpo_theory.theory.leave_one_out import break_even_group_size as break_even_group_size
from grpo_theory.theory.leave_one_out import leave_one_out_covariance as leave_one_out_covariance
from grpo_theory.theory.leave_one_out import leave_one_out_parts as leave_one_out_parts
from grpo_theory.theory.leave_one_out import leave_one_out_traces as leave_one_out_traces
from grpo_theory.theory.leave_one_out import own_mean_mse as own_mean_mse
from grpo_theory.theory.leave_one_out import remainder_bound as remainder_bound
from grpo_theory.theory.limit import Linearisation as Linearisation
from grpo_theory.theory.limit import gap_recursion as gap_recursion
from grpo_theory.theory.limit import limit_covariance as limit_covariance
from grpo_theory.theory.limit import limit_law as limit_law
from grpo_theory.theory.limit import linearise as linearise
from grpo_theory.theory.noise_cost import TrainingLaw as TrainingLaw
from grpo_theory.theory.noise_cost import noise_free_path as noise_free_path
from grpo_theory.theory.noise_cost import noise_free_slopes as noise_free_slopes
from grpo_theory.theory.noise_cost import training_law as training_law
from grpo_theory.theory.weighted_chi_square import WeightedChiSquare as WeightedChiSquare
