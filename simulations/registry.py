"""The list of studies, from which every other list derives."""

from simulations import (
    baseline_curve,
    baselines,
    coverage,
    coverage_pairs,
    coverage_runs,
    error_law,
    estimators,
    gap_weights,
    gradient_error,
    group_size,
    group_size_horizon,
    group_size_lm,
    group_size_path,
    group_size_schedule,
    lemma_14,
    limit_law,
    training_gap,
    u_statistic,
)

STUDIES = {
    module.STUDY.name: module.STUDY
    for module in (
        u_statistic,
        error_law,
        gradient_error,
        baselines,
        baseline_curve,
        estimators,
        group_size_path,
        group_size,
        group_size_lm,
        group_size_horizon,
        group_size_schedule,
        training_gap,
        lemma_14,
        limit_law,
        gap_weights,
        coverage,
        coverage_runs,
        coverage_pairs,
    )
}
