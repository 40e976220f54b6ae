"""The shrunk leave-one-out baseline of arXiv 2511.03710."""

from grpo_theory.estimation.composition import estimator
from grpo_theory.estimation.trainers.batch_kernels import shrunk

james_stein = estimator(
    "james_stein",
    parameters={"epsilon": 1e-6, "strength": 1.0},
    minimum_group_size=2,
    couples_groups=True,
    source="A = Z - (1 - l) mean of the group's others - l mean of the other groups, l = v/(v + s + 1e-6): arXiv 2511.03710, "
    "compute_jspo_outcome_advantage of its authors' code",
)(shrunk)
