"""What is stated of the frontier of whole runs, on average over draws of a world, and how near is near enough."""

from grpo_theory.evidence import PARTS, Statement
from simulations.sources import OURS

ISOCOMPUTE, TWO, SCALE = "arXiv 2603.12151 (IsoCompute)", "arXiv 2510.00977 (2-GRPO)", "arXiv 2510.13786 (ScaleRL)"
P1 = Statement("P1", ISOCOMPUTE, "the best group size grows with the responses spent in all, and saturates", PARTS)
GROWS = Statement(
    "P1/grows",
    ISOCOMPUTE,
    "at the largest budget some group size that is four times the best one of the smallest budget, or more, beats that one, on "
    "average over draws of the world",
    "ordering",
    measured=True,
)
PLANNED = Statement(
    "P1/64 over 8",
    ISOCOMPUTE,
    "at the largest budget groups of 64 end above groups of 8, on average over draws of the world",
    "ordering",
    measured=True,
)
BATCH = Statement(
    "P1/batch",
    ISOCOMPUTE,
    "from 64 to 1,024 responses per update, each with its best group size: at most a tenth of the gain is lost",
    "upper bound",
    measured=True,
)
HARM = Statement(
    "P1/interference",
    ISOCOMPUTE,
    "same responses: with groups of 64 fewer prompts end below their start than with groups of 4",
    "ordering",
    measured=True,
)
SHARPENS = Statement(
    "P1/sharpening",
    ISOCOMPUTE,
    "easy prompts: training adds more to the worst of 8 responses than to the best of 8",
    "ordering",
    measured=True,
)
COVERS = Statement(
    "P1/coverage",
    ISOCOMPUTE,
    "hard prompts: training adds more to the best of 8 responses than to the worst of 8",
    "ordering",
    measured=True,
)
ONE_SIZE = Statement(
    "U9/whole runs",
    "question beside arXiv 2603.01162, Theorem 7",
    "one size for all budgets: the best group size of the smallest budget loses at most a tenth of the gain at the largest",
    "upper bound",
    whose=OURS,
)
PAIRS = Statement(
    "P2",
    TWO,
    "as many prompts and updates: groups of 2 reach 97.6% of the success of groups of 16, with an eighth of the responses",
    "upper bound",
    measured=True,
)
LAW = Statement(
    "P8/law",
    SCALE,
    "success follows A, b and C_mid: fitted up to a quarter of the responses, the law is within 5% at the end",
    "upper bound",
    measured=True,
)
CEILING = Statement(
    "P8/ceiling",
    SCALE,
    "to divide by the standard deviation or not moves the ceiling by at most 2% of it",
    "upper bound",
    measured=True,
)
STATEMENTS = (P1, GROWS, PLANNED, BATCH, HARM, SHARPENS, COVERS, ONE_SIZE, PAIRS, LAW, CEILING)
TOO_FEW = "24 draws are too few to tell what the control loses there at a level of 1e-4; limits of 95% are in the table"
POWERLESS: dict[tuple[str, str], str] = {
    (name, settings): TOO_FEW
    for name, own in (
        (PLANNED.id, ("few prompts, [gd]*", "wrong rewards, grpo*", "16 tokens, grpo*", "learned features*", "hard*")),
        (GROWS.id, ("few prompts, grpo, N = 64", "few prompts, grpo, N = 1024", "hard*")),
        (ONE_SIZE.id, ("few prompts, grpo, N = 1024",)),
        (HARM.id, ("learned features, rloo*",)),
        (LAW.id, ("few prompts*", "shared, rloo*", "easy*", "hard*", "wrong rewards*", "16 tokens*", "learned features*")),
    )
    for settings in own
}
LAW_MARGIN, CEILING_MARGIN = 0.05, 0.02
"""A prediction off by 5% would not change a plan; ceilings are compared where runs have ended, and 2% is a prompt in fifty."""
USUAL = 8
"""Leads of all sizes are over groups of 8, of which trainers have the most use."""
LOST = 0.1
"""A tenth of the gain is what a learning rate that is off by two costs: nobody would tune the group size for less."""
KEPT = 0.976
"""The share that 2-GRPO's abstract prints (v3)."""
