"""The list of studies, from which every other list derives."""

from simulations import (
    baseline_curve,
    baselines,
    error_law,
    estimators,
    gradient_error,
    group_size,
    group_size_horizon,
    group_size_lm,
    group_size_path,
    group_size_schedule,
    limit_law,
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
        limit_law,
        group_size_path,
        group_size,
        group_size_lm,
        group_size_horizon,
        group_size_schedule,
    )
}
