"""The variance as a function of the baseline, SmolLM2.

C = t V and C = t b*, exact and simulated: curves that illustrate U6 and R2, which `baselines` decides.
"""

from functools import partial

import grpo_theory as gt
from grpo_theory.harness import rows
from grpo_theory.theory import baseline_trace
from simulations.gradient.baseline_statements import moments_of
from simulations.gradient.cells import gradient_cases, merge, row_of, simulated
from simulations.kernels import kernel_at

CURVES = {(kernel, t): kernel_at(kernel, t) for kernel in ("scaled_value", "scaled_optimal") for t in (0.0, 0.5, 1.0, 1.5, 2.0)}

drawn = simulated(*CURVES.values())


@rows(
    of=drawn,
    cases=partial(gradient_cases, group_sizes=(8,), batch_size=1, problems=gt.gallery.names("gradient", "language model")),
)
def variances(found, problem, group_size):
    """G times the error, the variance of one response's term, for each kernel and scale."""
    simulation, moments = merge(found), moments_of(problem)
    baselines = {"scaled_value": moments.value, "scaled_optimal": moments.optimal_baseline}
    for (name, t), kernel in CURVES.items():
        row = row_of(simulation, "prompt_mse", kernel.name)
        row |= {column: row[column] * group_size for column in ("estimate", "standard_error")}
        exact = float(moments.prompt_weights @ baseline_trace(moments, t * baselines[name]))
        yield row | {"baseline": name, "t": t, "prediction": exact}
