"""What the trainers compute, by library and version, as named estimators: docs/trainers.md has the table.

A name of a trainer's function (trl_grpo, verl_opo) stands for its advantages, one that ends in _loss for its loss off policy.
"""

from collections.abc import Mapping
from types import MappingProxyType

from grpo_theory.estimation.parts import CLIPS
from grpo_theory.estimation.registry import Estimator, compose, estimator
from grpo_theory.estimation.trainer_kernels import (
    best_less_second,
    centred,
    leave_one_out,
    leave_one_out_standardised,
    leave_one_out_whitened,
    length_weighted,
    relative_to_mean,
    scaled_by_batch,
    scaled_by_successes,
    shrunk,
    standardised,
    whitened_by_token,
)

james_stein = estimator(
    "james_stein",
    parameters={"epsilon": 1e-6, "strength": 1.0},
    minimum_group_size=2,
    couples_groups=True,
    source="A = Z - (1 - l) mean of the group's others - l mean of the other groups, l = v/(v + s + 1e-6): arXiv 2511.03710, "
    "compute_jspo_outcome_advantage of its authors' code",
)(shrunk)

nemo_rl = estimator(
    "nemo_rl",
    parameters={"ddof": 1.0, "epsilon": 1e-6, "floor": 0.0},
    source="A = (Z - mean of the others)/(sd of the others + 1e-6), ddof 1, not divided where that sd is 0: "
    "NeMo-RL (main, August 2026), GRPOAdvantageEstimator with calculate_baseline_and_std_per_prompt",
)(leave_one_out_standardised)

OPENRLHF = "OpenRLHF 0.11.0, RemoteExperienceMaker.compute_advantages_and_returns, {}".format

openrlhf_rloo = estimator(
    "openrlhf_rloo",
    parameters={"alone": 0.0},
    minimum_group_size=2,
    source=f"A = Z - mean of the others: {OPENRLHF('rloo')}",
)(leave_one_out)

openrlhf_dr_grpo = estimator("openrlhf_dr_grpo", parameters={"alone": 0.0}, source=f"A = Z - group mean: {OPENRLHF('dr_grpo')}")(
    centred
)

openrlhf_group_norm = estimator(
    "openrlhf_group_norm",
    parameters={"ddof": 1.0, "epsilon": 1e-9, "floor": 0.0, "alone": 0.0},
    minimum_group_size=2,
    source=f"A = (Z - group mean)/(group sd + 1e-9), ddof 1: {OPENRLHF('group_norm')}",
)(standardised)

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

rllm = estimator(
    "rllm",
    parameters={"ddof": 0.0, "epsilon": 1e-6, "floor": 0.0, "alone": 1.0},
    source="A = (Z - group mean)/(group sd + 1e-6), ddof 0; a lone response keeps Z: rLLM 0.3.0.pre, "
    "calculate_grpo_advantages_per_group",
)(standardised)

GRPO = "TRL 1.16.0, GRPOTrainer._generate_and_score_completions, scale_rewards={!r}".format
RLOO = "TRL 1.16.0, RLOOTrainer._generate_and_score_completions, normalize_advantages={}".format
LOSS = "TRL 1.16.0, GRPOTrainer._compute_loss, loss_type={!r}".format

trl_grpo = estimator(
    "trl_grpo",
    parameters={"ddof": 1.0, "epsilon": 1e-4, "floor": 0.0, "alone": 0.0},
    source=f"A = (Z - group mean)/(group sd + 1e-4), ddof 1: {GRPO('group')}",
)(standardised)

trl_grpo_batch = estimator(
    "trl_grpo_batch",
    parameters={"ddof": 1.0, "epsilon": 1e-4},
    couples_groups=True,
    source=f"A = (Z - group mean)/(sd of the batch's rewards + 1e-4), ddof 1: {GRPO('batch')}",
)(scaled_by_batch)

trl_grpo_none = estimator("trl_grpo_none", parameters={"alone": 0.0}, source=f"A = Z - group mean: {GRPO('none')}")(centred)

trl_rloo = estimator("trl_rloo", parameters={"alone": 0.0}, source=f"A = Z - mean of the others: {RLOO(False)}")(leave_one_out)

trl_rloo_whitened = estimator(
    "trl_rloo_whitened",
    parameters={"ddof": 1.0, "epsilon": 1e-4},
    minimum_group_size=2,
    couples_groups=True,
    source=f"A = (a - mean of a)/(sd of a + 1e-4) over the batch, ddof 1, a = Z - mean of the others: {RLOO(True)}",
)(leave_one_out_whitened)

trl_dapo_loss = compose(
    "trl_dapo_loss",
    advantage=trl_grpo,
    ratio="token",
    clip="by sign",
    aggregation="batch tokens",
    source=f"A r_t/(tokens of the batch), clipped by sign at 0.8 and 1.2, A as in trl_grpo, the default: {LOSS('dapo')}",
)

trl_grpo_loss = compose(
    "trl_grpo_loss",
    advantage=trl_grpo,
    ratio="token",
    clip="by sign",
    aggregation="own length",
    source=f"A r_t/|y|, clipped by sign at 0.8 and 1.2, A as in trl_grpo: {LOSS('grpo')}",
)

trl_dr_grpo_loss = compose(
    "trl_dr_grpo_loss",
    advantage=trl_grpo_none,
    ratio="token",
    clip="by sign",
    aggregation="constant",
    source=f"A r_t/(max_completion_length), clipped by sign at 0.8 and 1.2, A as in trl_grpo_none: {LOSS('dr_grpo')}",
)

trl_gspo_loss = compose(
    "trl_gspo_loss",
    advantage=trl_grpo,
    ratio="geometric",
    clip=CLIPS["by sign"].with_widths(3e-4, 4e-4),
    aggregation="own length",
    source="A (prod r_t)^(1/|y|)/|y|, clipped by sign at 1 - 3e-4 and 1 + 4e-4, A as in trl_grpo: "
    + LOSS("grpo")
    + ", importance_sampling_level='sequence'",
)

trl_cispo_loss = compose(
    "trl_cispo_loss",
    advantage=trl_grpo,
    ratio="token",
    clip=CLIPS["cap at high"].with_widths(0.0, 5.0),
    aggregation="batch tokens",
    source=f"A min(r_t, epsilon_high)/(tokens of the batch), epsilon_high = 5 itself the cap, A as in trl_grpo: {LOSS('cispo')}",
)

trl_rloo_loss = compose(
    "trl_rloo_loss",
    advantage=trl_rloo,
    ratio="trajectory",
    clip="by sign",
    aggregation="sum",
    source="A prod r_t, clipped by sign at 0.8 and 1.2, A as in trl_rloo: TRL 1.16.0, RLOOTrainer._compute_loss",
)

VERL = "verl 0.9.1, core_algos.compute_{}".format

verl_grpo = estimator(
    "verl_grpo",
    parameters={"ddof": 1.0, "epsilon": 1e-6, "floor": 0.0, "alone": 1.0},
    source=f"A = (Z - group mean)/(group sd + 1e-6), ddof 1; a lone response keeps Z: {VERL('grpo_outcome_advantage')}",
)(standardised)

verl_dr_grpo = estimator(
    "verl_dr_grpo",
    parameters={"alone": 1.0},
    source="A = Z - group mean; a lone response keeps Z: "
    + VERL("grpo_outcome_advantage")
    + " with norm_adv_by_std_in_grpo=False",
)(centred)

verl_rloo = estimator(
    "verl_rloo",
    parameters={"alone": 1.0},
    source=f"A = G/(G-1) (Z - group mean); a lone response keeps Z: {VERL('rloo_outcome_advantage')}",
)(leave_one_out)

verl_opo = estimator(
    "verl_opo",
    parameters={"alone": 1.0},
    source="A = Z - (sum |y| Z)/(sum |y|) over the group; a lone response keeps Z: OPO (arXiv 2505.23585), "
    + VERL("opo_outcome_advantage"),
)(length_weighted)

verl_grpo_passk = estimator(
    "verl_grpo_passk",
    parameters={"ddof": 1.0, "epsilon": 1e-6, "floor": 0.0},
    minimum_group_size=2,
    source="A = (best - second best)/(group sd + 1e-6) for the best response, 0 for the others: arXiv 2503.19595, "
    + VERL("grpo_passk_outcome_advantage"),
)(best_less_second)

verl_reinforce_plus_plus_baseline = estimator(
    "verl_reinforce_plus_plus_baseline",
    parameters={"epsilon": 1e-8, "alone": 1.0},
    couples_groups=True,
    source="A = (a - m)/sqrt(v + 1e-8), a = Z - group mean, m and v over the batch's tokens: REINFORCE++ (arXiv 2501.03262), "
    + VERL("reinforce_plus_plus_baseline_outcome_advantage"),
)(whitened_by_token)

verl_gpg = estimator(
    "verl_gpg",
    parameters={"alone": 1.0},
    couples_groups=True,
    source="A = (Z - group mean) N/(responses of the batch with Z != 0): GPG (arXiv 2504.02546), "
    + VERL("gpg_outcome_advantage"),
)(scaled_by_successes)

verl_grpo_loss = compose(
    "verl_grpo_loss",
    advantage=verl_grpo,
    ratio="token",
    clip="dual",
    aggregation="batch tokens",
    source="A r_t/(tokens of the batch), clipped by sign at 0.8 and 1.2, and at 3 where A < 0, A as in verl_grpo, the default: "
    + VERL("policy_loss_vanilla")
    + ", token-mean",
)

verl_dr_grpo_loss = compose(
    "verl_dr_grpo_loss",
    advantage=verl_dr_grpo,
    ratio="token",
    clip="dual",
    aggregation="constant",
    source="A r_t/T, clipped by sign at 0.8 and 1.2, and at 3 where A < 0, A as in verl_dr_grpo: "
    + VERL("policy_loss_vanilla")
    + ", seq-mean-token-sum-norm",
)

verl_gspo_loss = compose(
    "verl_gspo_loss",
    advantage=verl_grpo,
    ratio="geometric",
    clip=CLIPS["by sign"].with_widths(3e-4, 4e-4),
    aggregation="own length",
    source="A (prod r_t)^(1/|y|)/|y|, clipped by sign at 1 - 3e-4 and 1 + 4e-4, A as in verl_grpo: "
    + VERL("policy_loss_gspo")
    + ", seq-mean-token-mean",
)

verl_cispo_loss = compose(
    "verl_cispo_loss",
    advantage=verl_grpo,
    ratio="token",
    clip="clamp",
    aggregation="batch tokens",
    source="A clamp(r_t, 0.8, 1.2)/(tokens of the batch), A as in verl_grpo: " + VERL("policy_loss_cispo") + ", token-mean",
)

verl_gpg_loss = compose(
    "verl_gpg_loss",
    advantage=verl_gpg,
    aggregation="batch tokens",
    source="A/(tokens of the batch), no ratio, A as in verl_gpg: " + VERL("policy_loss_gpg") + ", token-mean",
)

CONVENTIONS: Mapping[str, Estimator] = MappingProxyType(
    {found.name: found for found in list(vars().values()) if isinstance(found, Estimator)}
)
"""Every trainer's estimators, name -> `Estimator`, library by library."""
