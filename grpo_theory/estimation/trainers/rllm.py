"""rLLM 0.3.0: the z-score."""

from grpo_theory.estimation.composition import estimator
from grpo_theory.estimation.trainers.kernels import standardised

rllm = estimator(
    "rllm",
    parameters={"ddof": 0.0, "epsilon": 1e-6, "floor": 0.0, "alone": 1.0},
    source="A = (Z - group mean)/(group sd + 1e-6), ddof 0; a lone response keeps Z: rLLM 0.3.0.pre, "
    "calculate_grpo_advantages_per_group",
)(standardised)
