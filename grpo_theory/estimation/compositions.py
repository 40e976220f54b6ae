"""The named compositions: ratios, clips and aggregation as papers and trainers have them."""

from grpo_theory.estimation import named as named  # the kernels register first
from grpo_theory.estimation.composition import compose
from grpo_theory.estimation.ratio import CLIPS

dapo = compose(
    "dapo",
    advantage="grpo",
    ratio="token",
    clip=CLIPS["by sign"].with_widths(0.2, 0.28),
    aggregation="batch tokens",
    source="A r_t/(tokens of the batch), clipped by sign at 0.8 and 1.28, A as in grpo: DAPO (arXiv 2503.14476) in trainers",
)

gspo = compose(
    "gspo",
    advantage="grpo",
    ratio="geometric",
    clip=CLIPS["by sign"].with_widths(3e-4, 4e-4),
    aggregation="own length",
    source="A (prod r_t)^(1/|y|)/|y|, clipped by sign at 1 - 3e-4 and 1 + 4e-4, A as in grpo: GSPO (arXiv 2507.18071)",
)

tic_grpo = compose(
    "tic_grpo",
    advantage="dr_grpo",
    ratio="trajectory",
    clip="upper only",
    aggregation="constant",
    source="A (prod r_t)/T, dropped above 1.2, A as in dr_grpo: TIC-GRPO (arXiv 2508.02833)",
)

cispo = compose(
    "cispo",
    advantage="grpo",
    ratio="token",
    clip="cap",
    aggregation="group tokens",
    source="A min(r_t, 1.2)/(tokens of the group), A as in grpo: CISPO (arXiv 2506.13585)",
)

grpo_without_ratio = compose(
    "grpo_without_ratio",
    advantage="grpo",
    aggregation="own length",
    source="A/|y|, A as in grpo: GRPO's update with importance sampling left out (arXiv 2508.02833)",
)
