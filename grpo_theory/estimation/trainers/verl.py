"""verl 0.9.1: advantages of its registered estimators, and its losses."""

from grpo_theory.estimation.composition import compose, estimator
from grpo_theory.estimation.ratio import CLIPS
from grpo_theory.estimation.trainers.batch_kernels import scaled_by_successes, whitened_by_token
from grpo_theory.estimation.trainers.kernels import best_less_second, centred, leave_one_out, length_weighted, standardised

SOURCE = "verl 0.9.1, core_algos.compute_{}".format

verl_grpo = estimator(
    "verl_grpo",
    parameters={"ddof": 1.0, "epsilon": 1e-6, "floor": 0.0, "alone": 1.0},
    source=f"A = (Z - group mean)/(group sd + 1e-6), ddof 1; a lone response keeps Z: {SOURCE('grpo_outcome_advantage')}",
)(standardised)

verl_dr_grpo = estimator(
    "verl_dr_grpo",
    parameters={"alone": 1.0},
    source="A = Z - group mean; a lone response keeps Z: "
    + SOURCE("grpo_outcome_advantage")
    + " with norm_adv_by_std_in_grpo=False",
)(centred)

verl_rloo = estimator(
    "verl_rloo",
    parameters={"alone": 1.0},
    source=f"A = G/(G-1) (Z - group mean); a lone response keeps Z: {SOURCE('rloo_outcome_advantage')}",
)(leave_one_out)

verl_opo = estimator(
    "verl_opo",
    parameters={"alone": 1.0},
    source="A = Z - (sum |y| Z)/(sum |y|) over the group; a lone response keeps Z: OPO (arXiv 2505.23585), "
    + SOURCE("opo_outcome_advantage"),
)(length_weighted)

verl_grpo_passk = estimator(
    "verl_grpo_passk",
    parameters={"ddof": 1.0, "epsilon": 1e-6, "floor": 0.0},
    minimum_group_size=2,
    source="A = (best - second best)/(group sd + 1e-6) for the best response, 0 for the others: arXiv 2503.19595, "
    + SOURCE("grpo_passk_outcome_advantage"),
)(best_less_second)

verl_reinforce_plus_plus_baseline = estimator(
    "verl_reinforce_plus_plus_baseline",
    parameters={"epsilon": 1e-8, "alone": 1.0},
    couples_groups=True,
    source="A = (a - m)/sqrt(v + 1e-8), a = Z - group mean, m and v over the batch's tokens: REINFORCE++ (arXiv 2501.03262), "
    + SOURCE("reinforce_plus_plus_baseline_outcome_advantage"),
)(whitened_by_token)

verl_gpg = estimator(
    "verl_gpg",
    parameters={"alone": 1.0},
    couples_groups=True,
    source="A = (Z - group mean) N/(responses of the batch with Z != 0): GPG (arXiv 2504.02546), "
    + SOURCE("gpg_outcome_advantage"),
)(scaled_by_successes)

verl_grpo_loss = compose(
    "verl_grpo_loss",
    advantage=verl_grpo,
    ratio="token",
    clip="dual",
    aggregation="batch tokens",
    source="A r_t/(tokens of the batch), clipped by sign at 0.8 and 1.2, and at 3 where A < 0, A as in verl_grpo, the default: "
    + SOURCE("policy_loss_vanilla")
    + ", token-mean",
)

verl_dr_grpo_loss = compose(
    "verl_dr_grpo_loss",
    advantage=verl_dr_grpo,
    ratio="token",
    clip="dual",
    aggregation="constant",
    source="A r_t/T, clipped by sign at 0.8 and 1.2, and at 3 where A < 0, A as in verl_dr_grpo: "
    + SOURCE("policy_loss_vanilla")
    + ", seq-mean-token-sum-norm",
)

verl_gspo_loss = compose(
    "verl_gspo_loss",
    advantage=verl_grpo,
    ratio="geometric",
    clip=CLIPS["by sign"].with_widths(3e-4, 4e-4),
    aggregation="own length",
    source="A (prod r_t)^(1/|y|)/|y|, clipped by sign at 1 - 3e-4 and 1 + 4e-4, A as in verl_grpo: "
    + SOURCE("policy_loss_gspo")
    + ", seq-mean-token-mean",
)

verl_cispo_loss = compose(
    "verl_cispo_loss",
    advantage=verl_grpo,
    ratio="token",
    clip="clamp",
    aggregation="batch tokens",
    source="A clamp(r_t, 0.8, 1.2)/(tokens of the batch), A as in verl_grpo: " + SOURCE("policy_loss_cispo") + ", token-mean",
)

verl_gpg_loss = compose(
    "verl_gpg_loss",
    advantage=verl_gpg,
    aggregation="batch tokens",
    source="A/(tokens of the batch), no ratio, A as in verl_gpg: " + SOURCE("policy_loss_gpg") + ", token-mean",
)
