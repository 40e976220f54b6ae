"""prime-rl and Tinker: the group mean alone, and divided by itself (MaxRL)."""

from grpo_theory.estimation.composition import estimator
from grpo_theory.estimation.trainers.kernels import centred, relative_to_mean

prime_rl = estimator(
    "prime_rl", parameters={"alone": 0.0}, source="A = Z - group mean: prime-rl (main, August 2026), GRPOAlgorithm.score_group"
)(centred)

tinker = estimator(
    "tinker", parameters={"alone": 0.0}, source="A = Z - group mean: tinker-cookbook, rl.data_processing.compute_advantages"
)(centred)

max_rl = estimator(
    "max_rl",
    source="A = (Z - group mean)/group mean, 0 where that is not above 0: MaxRL (arXiv 2602.02710), "
    "prime-rl (main, August 2026), MaxRLAlgorithm.score_group",
)(relative_to_mean)
