"""U6, R2: no baseline, V, b*, and their leave-one-out twins.

Every problem is simulated, and the variances are compared by differences of estimators on the same draws. In one control the mean
is added instead of subtracted, which is worse than no baseline for V > 0. In the other the baseline is one reward too high: its
error exceeds that of b* by E||W||^2/G.
"""

from functools import partial

import grpo_theory as gt
from grpo_theory.harness import check, rows
from grpo_theory.theory import baseline_trace, break_even_group_size, leave_one_out_traces
from simulations.gradient.baseline_statements import VANILLA_4, VANILLA_64, assumption_facts, correlations
from simulations.gradient.cells import error_of, gradient_cases, merge, row_of, simulated
from simulations.kernels import kernel_at
from simulations.statements import stated

ESTIMATORS = ("reinforce", "oracle", "optimal", "rloo", "optimal_loo")
COMPARISONS = {
    4: ((VANILLA_4, "rloo", "reinforce"), (stated("R2/plug-in, G=4"), "optimal_loo", "rloo")),
    64: (
        (VANILLA_64, "rloo", "reinforce"),
        (stated("R2"), "optimal", "oracle"),
        (stated("R2/plug-in, G=64"), "optimal_loo", "rloo"),
    ),
}
"""By group size: a statement, and the estimator that it says is at most as noisy as another."""
ADDED, HIGH = kernel_at("scaled_mean", -1.0, "mean added"), kernel_at("shifted_optimal", 1.0, "b* + 1")
MISTAKEN = {"rloo": ADDED.name, "optimal": HIGH.name, "optimal_loo": HIGH.name}
"""What replaces the first in the broken comparisons."""

cases = partial(gradient_cases, group_sizes=tuple(COMPARISONS), batch_size=4)
drawn = simulated(*ESTIMATORS, ADDED, HIGH)


def moments_of(problem):
    """Return the moments of a problem at its theta."""
    found = gt.gallery.problem(problem)
    return gt.moments(found, found.theta)


@check(
    *(one for each in COMPARISONS.values() for one, *_ in each),
    of=drawn,
    cases=cases,
    broken={"mistaken": MISTAKEN},
    setting="{problem}",
)
def comparisons(found, problem, group_size, mistaken=None):
    """Paired differences, which are at most 0."""
    simulation, facts = merge(found), assumption_facts(correlations(moments_of(problem)))
    return {
        one.id: (error_of(simulation, "prompt_mse", (mistaken or {}).get(first, first), second), 0.0, facts)
        for one, first, second in COMPARISONS[group_size]
    }


@rows(of=drawn, cases=cases)
def errors(found, problem, group_size):
    """The error of each estimator beside the exact one, where there is a closed form, and the assumption's measures."""
    simulation, moments = merge(found), moments_of(problem)
    exact = {
        "reinforce": baseline_trace(moments, 0.0) / group_size,
        "oracle": baseline_trace(moments, moments.value) / group_size,
        "optimal": baseline_trace(moments, moments.optimal_baseline) / group_size,
        "rloo": leave_one_out_traces(moments, group_size),
    }
    common = {"value": float(moments.prompt_weights @ moments.value), "break_even": break_even_group_size(moments)}
    for name in ESTIMATORS:
        known = {"prediction": float(moments.prompt_weights @ exact[name])} if name in exact else {}
        yield common | correlations(moments) | row_of(simulation, "prompt_mse", name) | known
