"""U6, R2: no baseline, V, b*, and their leave-one-out twins.

Every problem is simulated, and the variances are compared by differences of estimators on the same draws. In one control the mean
is added instead of subtracted, which is worse than no baseline for V > 0. In the other the baseline is one reward too high: its
error exceeds that of b* by E||W||^2/G.
"""

from grpo_theory.harness import check, rows
from grpo_theory.theory import break_even_group_size
from simulations.gradient.baseline_statements import VANILLA_4, VANILLA_64, assumption_facts, correlations, moments_of
from simulations.gradient.baseline_statements import errors as closed
from simulations.gradient.cells import error_of, gradient_cases, merge, row_of, simulated
from simulations.kernels import kernel_at
from simulations.statements import stated

ESTIMATORS = ("reinforce", "oracle", "optimal", "rloo", "optimal_loo")
COMPARISONS = {
    VANILLA_4: (4, "rloo", "reinforce"),
    VANILLA_64: (64, "rloo", "reinforce"),
    stated("R2"): (64, "optimal", "oracle"),
    stated("R2/plug-in, G=4"): (4, "optimal_loo", "rloo"),
    stated("R2/plug-in, G=64"): (64, "optimal_loo", "rloo"),
}
"""The group size of a statement, and the estimator that it says is at most as noisy as another."""
ADDED, HIGH = kernel_at("scaled_mean", -1.0, "mean added"), kernel_at("shifted_optimal", 1.0, "b* + 1")
MISTAKEN = {"rloo": ADDED.name, "optimal": HIGH.name, "optimal_loo": HIGH.name}
"""What replaces the first in the broken comparisons."""

REPLICATIONS = 1 << 15
"""By the limits of a run with twice as many, all verdicts are then two half-widths from their margin or more."""


def cases(quick):
    """Every problem at either group size."""
    listed = gradient_cases(quick, group_sizes=(4, 64), batch_size=4)
    return [case | {"replications": min(case["replications"], REPLICATIONS)} for case in listed]


drawn = simulated(*ESTIMATORS, ADDED, HIGH)


@check(*COMPARISONS, of=drawn, cases=cases, broken={"mistaken": MISTAKEN}, setting="{problem}")
def comparisons(found, problem, group_size, mistaken=None):
    """Paired differences, which are at most 0."""
    simulation, facts = merge(found), assumption_facts(correlations(moments_of(problem)))
    return {
        one.id: (error_of(simulation, "prompt_mse", (mistaken or {}).get(first, first), second), 0.0, facts)
        for one, (size, first, second) in COMPARISONS.items()
        if size == group_size
    }


@rows(of=drawn, cases=cases)
def errors(found, problem, group_size):
    """The error of each estimator beside the exact one, where there is a closed form, and the assumption's measures."""
    simulation, moments = merge(found), moments_of(problem)
    common = {"value": float(moments.prompt_weights @ moments.value), "break_even": break_even_group_size(moments)}
    exact = closed(moments, group_size)
    for name in ESTIMATORS:
        known = {"prediction": exact.get(name, float("nan"))}
        yield common | correlations(moments) | row_of(simulation, "prompt_mse", name) | known
