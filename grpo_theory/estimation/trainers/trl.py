"""TRL 1.16.0: advantages of GRPOTrainer and RLOOTrainer, and their losses."""

from grpo_theory.estimation.composition import compose, estimator
from grpo_theory.estimation.ratio import CLIPS
from grpo_theory.estimation.trainers.batch_kernels import leave_one_out_whitened, scaled_by_batch
from grpo_theory.estimation.trainers.kernels import centred, leave_one_out, standardised

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
