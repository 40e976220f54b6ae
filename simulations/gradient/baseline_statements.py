"""U6: what is said of leave-one-out beside no baseline and beside the prompt's value, where several studies decide it."""

from grpo_theory.evidence import Statement
from simulations.sources import DEMYSTIFYING, OURS

VANILLA_4 = Statement(
    "U6/vanilla, G=4", f"{DEMYSTIFYING}, Fig. 4", "leave-one-out below no baseline, G = 4", "ordering", measured=True
)
VANILLA_64 = Statement(
    "U6/vanilla, G=64", f"{DEMYSTIFYING}, Fig. 4", "leave-one-out below no baseline, G = 64", "ordering", measured=True
)
NEAR = Statement(
    "U6/near, G=8",
    f"{DEMYSTIFYING}, Fig. 4",
    "leave-one-out is near the oracle: within 20% of its error at G = 8",
    "upper bound",
    measured=True,
)
SAME = Statement(
    "U6/same, G=32",
    f"{DEMYSTIFYING}, Fig. 4",
    "leave-one-out is indistinguishable from the oracle: within 5% of its error at G = 32 and at 64",
    "upper bound",
    measured=True,
)
CORRELATED = Statement(
    "U6/correlated",
    f"beyond {DEMYSTIFYING}, Corollary 5",
    "the same as printed, where ||W||^2 and Z are correlated",
    "upper bound",
    formula=r"The same as printed, where $\|W\|^2$ and $Z$ are correlated.",
    whose=OURS,
)
STRICT_CORRELATED = Statement(
    "U6/strict, correlated",
    f"beyond {DEMYSTIFYING}, Corollary 5",
    "leave-one-out less noisy than no baseline as G grows, where ||W||^2 and Z are correlated",
    "ordering",
    formula=r"Leave-one-out is less noisy than no baseline as $G$ grows, where $\|W\|^2$ and $Z$ are correlated.",
    whose=OURS,
)

FIFTH, LINE = 0.2, 0.05
"""What is called near and the same: over Figure 4's axis, where errors fall 16-fold, a fifth is a fifteenth of the height, and 5%
a line's width."""
