"""Confidence intervals, each a function of samples; an interval function takes (data, level)."""

from grpo_theory.intervals.comparisons import best_set, paired_difference, paired_sequence, seeds_needed
from grpo_theory.intervals.interval import Ellipsoid, Interval, vectorized
from grpo_theory.intervals.ragged import RaggedRollouts, RewardCounts
from grpo_theory.intervals.records import TrainingRecord, rollout_hessian, simulate_records
from grpo_theory.intervals.rollout_intervals import (
    components_bootstrap,
    components_jackknife,
    gradient_between,
    gradient_ellipsoid,
    gradient_jackknife,
    group_size_bootstrap,
    group_size_fieller,
    group_size_jackknife,
    mse_bootstrap,
    mse_jackknife,
    value_clustered,
    value_effective,
    value_naive,
)
from grpo_theory.intervals.rollouts import Groups, Rollouts
from grpo_theory.intervals.run_intervals import (
    averaged_iterate,
    batch_means,
    best_value,
    gap_limit,
    gap_weights,
    last_iterate,
    last_iterate_ellipsoid,
    learned_value,
    random_scaling,
    random_scaling_quantile,
    tail_value,
)
from grpo_theory.intervals.u_statistics import estimate_group_size_law

__all__ = ["Ellipsoid", "Groups", "Interval", "RaggedRollouts", "RewardCounts", "Rollouts", "TrainingRecord"]
__all__ += ["averaged_iterate", "batch_means", "best_set", "best_value", "components_bootstrap", "components_jackknife"]
__all__ += ["estimate_group_size_law", "gap_limit", "gap_weights", "gradient_between", "gradient_ellipsoid"]
__all__ += ["gradient_jackknife", "group_size_bootstrap", "group_size_fieller", "group_size_jackknife", "last_iterate"]
__all__ += ["last_iterate_ellipsoid", "learned_value", "mse_bootstrap", "mse_jackknife", "paired_difference"]
__all__ += ["paired_sequence", "random_scaling", "random_scaling_quantile", "rollout_hessian", "seeds_needed"]
__all__ += ["simulate_records", "tail_value", "value_clustered", "value_effective", "value_naive", "vectorized"]
__dir__ = __all__.copy
