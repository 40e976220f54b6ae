"""The list of figures, in the order of the report."""

from paper_figures import (
    baseline_curve,
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
    oracle_ratio,
    who_wins,
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
    )
}
