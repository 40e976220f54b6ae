"""Predictions in closed form."""

from grpo_theory.theory.baseline import baseline_trace as baseline_trace
from grpo_theory.theory.bounds import constant_step_bound as constant_step_bound
from grpo_theory.theory.bounds import harmonic_step_bound as harmonic_step_bound
from grpo_theory.theory.bounds import recursion_bound as recursion_bound
from grpo_theory.theory.group_size import GroupSizeLaw as GroupSizeLaw
from grpo_theory.theory.group_size import group_size_law as group_size_law
from grpo_theory.theory.leave_one_out import break_even_group_size as break_even_group_size
from grpo_theory.theory.leave_one_out import leave_one_out_covariance as leave_one_out_covariance
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
from grpo_theory.theory.region import Region as Region
from grpo_theory.theory.region import largest_error as largest_error
from grpo_theory.theory.region import longest_estimate as longest_estimate
from grpo_theory.theory.region import region as region
from grpo_theory.theory.stability import StabilityWarning as StabilityWarning
from grpo_theory.theory.stability import spectral_radius as spectral_radius
from grpo_theory.theory.weighted_chi_square import WeightedChiSquare as WeightedChiSquare
