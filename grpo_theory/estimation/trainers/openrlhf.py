"""OpenRLHF 0.11.0: advantages of its experience maker."""

from grpo_theory.estimation.composition import estimator
from grpo_theory.estimation.trainers.kernels import centred, leave_one_out, standardised

SOURCE = "OpenRLHF 0.11.0, RemoteExperienceMaker.compute_advantages_and_returns, {}".format

openrlhf_rloo = estimator(
    "openrlhf_rloo",
    parameters={"alone": 0.0},
    minimum_group_size=2,
    source=f"A = Z - mean of the others: {SOURCE('rloo')}",
)(leave_one_out)

openrlhf_dr_grpo = estimator("openrlhf_dr_grpo", parameters={"alone": 0.0}, source=f"A = Z - group mean: {SOURCE('dr_grpo')}")(
    centred
)

openrlhf_group_norm = estimator(
    "openrlhf_group_norm",
    parameters={"ddof": 1.0, "epsilon": 1e-9, "floor": 0.0, "alone": 0.0},
    minimum_group_size=2,
    source=f"A = (Z - group mean)/(group sd + 1e-9), ddof 1: {SOURCE('group_norm')}",
)(standardised)
