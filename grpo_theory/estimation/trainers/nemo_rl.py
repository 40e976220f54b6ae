"""NeMo-RL: the advantage of its GRPO with both of its defaults, the leave-one-out baseline and normalised rewards."""

from grpo_theory.estimation.composition import estimator
from grpo_theory.estimation.trainers.kernels import leave_one_out_standardised

nemo_rl = estimator(
    "nemo_rl",
    parameters={"ddof": 1.0, "epsilon": 1e-6, "floor": 0.0},
    source="A = (Z - mean of the others)/(sd of the others + 1e-6), ddof 1, not divided where that sd is 0: "
    "NeMo-RL (main, August 2026), GRPOAdvantageEstimator with calculate_baseline_and_std_per_prompt",
)(leave_one_out_standardised)
