"""What papers compose of the named kernels, and what trainers compute, by library and version: docs/trainers.md has a table.

A name of a trainer's function (trl_grpo, verl_opo) stands for its advantages, one that ends in _loss for its loss off policy.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from grpo_theory.estimation import trainer_kernels
from grpo_theory.estimation.parts import CLIPS
from grpo_theory.estimation.registry import Estimator, compose, estimator

_PAPERS = """
dapo | grpo | token | by sign 0.2 0.28 | batch tokens
    A r_t/(tokens of the batch), clipped by sign at 0.8 and 1.28, A as in grpo: DAPO (arXiv 2503.14476) in trainers
gspo | grpo | geometric | by sign 0.0003 0.0004 | own length
    A (prod r_t)^(1/|y|)/|y|, clipped by sign at 1 - 3e-4 and 1 + 4e-4, A as in grpo: GSPO (arXiv 2507.18071)
tic_grpo | dr_grpo | trajectory | upper only | constant
    A (prod r_t)/T, dropped above 1.2, A as in dr_grpo: TIC-GRPO (arXiv 2508.02833)
cispo | grpo | token | cap | group tokens
    A min(r_t, 1.2)/(tokens of the group), A as in grpo: CISPO (arXiv 2506.13585)
grpo_without_ratio | grpo | none | none | own length
    A/|y|, A as in grpo: GRPO's update with importance sampling left out (arXiv 2508.02833)
"""
_TRAINERS = """
james_stein | shrunk | epsilon=1e-06 strength=1 | 2 | couples groups
    A = Z - (1 - l) mean of the group's others - l mean of the other groups, l = v/(v + s + 1e-6): arXiv 2511.03710,
    compute_jspo_outcome_advantage of its authors' code
nemo_rl | leave_one_out_standardised | ddof=1 epsilon=1e-06 floor=0 | 1
    A = (Z - mean of the others)/(sd of the others + 1e-6), ddof 1, not divided where that sd is 0: NeMo-RL (main, August
    2026), GRPOAdvantageEstimator with calculate_baseline_and_std_per_prompt
openrlhf_rloo | leave_one_out | alone=0 | 2
    A = Z - mean of the others: OpenRLHF 0.11.0, RemoteExperienceMaker.compute_advantages_and_returns, rloo
openrlhf_dr_grpo | centred | alone=0 | 1
    A = Z - group mean: OpenRLHF 0.11.0, RemoteExperienceMaker.compute_advantages_and_returns, dr_grpo
openrlhf_group_norm | standardised | ddof=1 epsilon=1e-09 floor=0 alone=0 | 2
    A = (Z - group mean)/(group sd + 1e-9), ddof 1: OpenRLHF 0.11.0, RemoteExperienceMaker.compute_advantages_and_returns,
    group_norm
prime_rl | centred | alone=0 | 1
    A = Z - group mean: prime-rl (main, August 2026), GRPOAlgorithm.score_group
tinker | centred | alone=0 | 1
    A = Z - group mean: tinker-cookbook, rl.data_processing.compute_advantages
max_rl | relative_to_mean | | 1
    A = (Z - group mean)/group mean, 0 where that is not above 0: MaxRL (arXiv 2602.02710), prime-rl (main, August 2026),
    MaxRLAlgorithm.score_group
rllm | standardised | ddof=0 epsilon=1e-06 floor=0 alone=1 | 1
    A = (Z - group mean)/(group sd + 1e-6), ddof 0; a lone response keeps Z: rLLM 0.3.0.pre,
    calculate_grpo_advantages_per_group
trl_grpo | standardised | ddof=1 epsilon=0.0001 floor=0 alone=0 | 1
    A = (Z - group mean)/(group sd + 1e-4), ddof 1: TRL 1.16.0, GRPOTrainer._generate_and_score_completions,
    scale_rewards='group'
trl_grpo_batch | scaled_by_batch | ddof=1 epsilon=0.0001 | 1 | couples groups
    A = (Z - group mean)/(sd of the batch's rewards + 1e-4), ddof 1: TRL 1.16.0, GRPOTrainer._generate_and_score_completions,
    scale_rewards='batch'
trl_grpo_none | centred | alone=0 | 1
    A = Z - group mean: TRL 1.16.0, GRPOTrainer._generate_and_score_completions, scale_rewards='none'
trl_rloo | leave_one_out | alone=0 | 1
    A = Z - mean of the others: TRL 1.16.0, RLOOTrainer._generate_and_score_completions, normalize_advantages=False
trl_rloo_whitened | leave_one_out_whitened | ddof=1 epsilon=0.0001 | 2 | couples groups
    A = (a - mean of a)/(sd of a + 1e-4) over the batch, ddof 1, a = Z - mean of the others: TRL 1.16.0,
    RLOOTrainer._generate_and_score_completions, normalize_advantages=True
trl_dapo_loss | trl_grpo | token | by sign | batch tokens
    A r_t/(tokens of the batch), clipped by sign at 0.8 and 1.2, A as in trl_grpo, the default: TRL 1.16.0,
    GRPOTrainer._compute_loss, loss_type='dapo'
trl_grpo_loss | trl_grpo | token | by sign | own length
    A r_t/|y|, clipped by sign at 0.8 and 1.2, A as in trl_grpo: TRL 1.16.0, GRPOTrainer._compute_loss, loss_type='grpo'
trl_dr_grpo_loss | trl_grpo_none | token | by sign | constant
    A r_t/(max_completion_length), clipped by sign at 0.8 and 1.2, A as in trl_grpo_none: TRL 1.16.0,
    GRPOTrainer._compute_loss, loss_type='dr_grpo'
trl_gspo_loss | trl_grpo | geometric | by sign 0.0003 0.0004 | own length
    A (prod r_t)^(1/|y|)/|y|, clipped by sign at 1 - 3e-4 and 1 + 4e-4, A as in trl_grpo: TRL 1.16.0,
    GRPOTrainer._compute_loss, loss_type='grpo', importance_sampling_level='sequence'
trl_cispo_loss | trl_grpo | token | cap at high 0 5 | batch tokens
    A min(r_t, epsilon_high)/(tokens of the batch), epsilon_high = 5 itself the cap, A as in trl_grpo: TRL 1.16.0,
    GRPOTrainer._compute_loss, loss_type='cispo'
trl_rloo_loss | trl_rloo | trajectory | by sign | sum
    A prod r_t, clipped by sign at 0.8 and 1.2, A as in trl_rloo: TRL 1.16.0, RLOOTrainer._compute_loss
verl_grpo | standardised | ddof=1 epsilon=1e-06 floor=0 alone=1 | 1
    A = (Z - group mean)/(group sd + 1e-6), ddof 1; a lone response keeps Z: verl 0.9.1,
    core_algos.compute_grpo_outcome_advantage
verl_dr_grpo | centred | alone=1 | 1
    A = Z - group mean; a lone response keeps Z: verl 0.9.1, core_algos.compute_grpo_outcome_advantage with
    norm_adv_by_std_in_grpo=False
verl_rloo | leave_one_out | alone=1 | 1
    A = G/(G-1) (Z - group mean); a lone response keeps Z: verl 0.9.1, core_algos.compute_rloo_outcome_advantage
verl_opo | length_weighted | alone=1 | 1
    A = Z - (sum |y| Z)/(sum |y|) over the group; a lone response keeps Z: OPO (arXiv 2505.23585), verl 0.9.1,
    core_algos.compute_opo_outcome_advantage
verl_grpo_passk | best_less_second | ddof=1 epsilon=1e-06 floor=0 | 2
    A = (best - second best)/(group sd + 1e-6) for the best response, 0 for the others: arXiv 2503.19595, verl 0.9.1,
    core_algos.compute_grpo_passk_outcome_advantage
verl_reinforce_plus_plus_baseline | whitened_by_token | epsilon=1e-08 alone=1 | 1 | couples groups
    A = (a - m)/sqrt(v + 1e-8), a = Z - group mean, m and v over the batch's tokens: REINFORCE++ (arXiv 2501.03262), verl
    0.9.1, core_algos.compute_reinforce_plus_plus_baseline_outcome_advantage
verl_gpg | scaled_by_successes | alone=1 | 1 | couples groups
    A = (Z - group mean) N/(responses of the batch with Z != 0): GPG (arXiv 2504.02546), verl 0.9.1,
    core_algos.compute_gpg_outcome_advantage
verl_grpo_loss | verl_grpo | token | dual | batch tokens
    A r_t/(tokens of the batch), clipped by sign at 0.8 and 1.2, and at 3 where A < 0, A as in verl_grpo, the default: verl
    0.9.1, core_algos.compute_policy_loss_vanilla, token-mean
verl_dr_grpo_loss | verl_dr_grpo | token | dual | constant
    A r_t/T, clipped by sign at 0.8 and 1.2, and at 3 where A < 0, A as in verl_dr_grpo: verl 0.9.1,
    core_algos.compute_policy_loss_vanilla, seq-mean-token-sum-norm
verl_gspo_loss | verl_grpo | geometric | by sign 0.0003 0.0004 | own length
    A (prod r_t)^(1/|y|)/|y|, clipped by sign at 1 - 3e-4 and 1 + 4e-4, A as in verl_grpo: verl 0.9.1,
    core_algos.compute_policy_loss_gspo, seq-mean-token-mean
verl_cispo_loss | verl_grpo | token | clamp | batch tokens
    A clamp(r_t, 0.8, 1.2)/(tokens of the batch), A as in verl_grpo: verl 0.9.1, core_algos.compute_policy_loss_cispo,
    token-mean
verl_gpg_loss | verl_gpg | none | none | batch tokens
    A/(tokens of the batch), no ratio, A as in verl_gpg: verl 0.9.1, core_algos.compute_policy_loss_gpg, token-mean
"""
"""A row has a name, a kernel, its parameters, the smallest group, and whether the kernel couples groups; below it is the source.
A composition's row has a name, whose advantages, the ratio, the clip (with its widths, if not 0.2) and the aggregation."""


def _register(table: str) -> Mapping[str, Estimator]:
    """Register the estimators of a table, and return them by name."""
    made: dict[str, Estimator] = {}
    for row in re.split(r"\n(?=\S)", table.strip()):
        facts, source = row.split("\n", 1)
        name, base, *rest = (fact.strip() for fact in facts.split("|"))
        source = " ".join(source.split())
        if not hasattr(trainer_kernels, base):
            ratio, clip, aggregation = rest
            kind, *widths = re.split(r" (?=\d)", clip)
            bound = CLIPS[kind].with_widths(*map(float, widths)) if widths else CLIPS[kind]
            made[name] = compose(name, advantage=base, ratio=ratio, clip=bound, aggregation=aggregation, source=source)
            continue
        how: dict[str, Any] = {"parameters": {key: float(value) for key, value in (one.split("=") for one in rest[0].split())}}
        how |= {"minimum_group_size": int(rest[1]), "couples_groups": len(rest) > 2, "exchangeable": True, "source": source}
        made[name] = estimator(name, **how)(getattr(trainer_kernels, base))
    return MappingProxyType(made)


COMPOSITIONS = _register(_PAPERS)
"""The compositions of papers, name -> `Estimator`."""
CONVENTIONS = _register(_TRAINERS)
"""Every trainer's estimators, name -> `Estimator`, library by library."""
