"""The list of figures, in the order of the report."""

from paper_figures import (
    baseline_curve,
    coverage_by_group_size,
    decomposition,
    estimators,
    gap_bounds,
    gap_quantiles,
    gap_weights,
    group_size_budgets,
    group_size_curves,
    group_size_horizon,
    group_size_path,
    group_size_schedule,
    mse_by_group_size,
    nested_loop,
    oracle_ratio,
    who_wins,
    width_by_coverage,
    zip_plot,
)

FIGURES = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        mse_by_group_size,
        decomposition,
        oracle_ratio,
        baseline_curve,
        who_wins,
        estimators,
        gap_bounds,
        gap_quantiles,
        gap_weights,
        group_size_path,
        group_size_curves,
        group_size_budgets,
        group_size_horizon,
        group_size_schedule,
        zip_plot,
        coverage_by_group_size,
        width_by_coverage,
        nested_loop,
    )
}
