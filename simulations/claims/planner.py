"""What the planner says of a user's own rollouts."""

from grpo_theory.evidence import Statement

TEXTS = {
    "uniform share": "the share of uniform groups at the logged group size",
    "uniform share, doubled": "the share of uniform groups at twice the logged group size",
    "step": "GRPO's mean weight of a prompt, h'(p)",
    "weighted rate": "the mean success rate of prompts by MaxRL's weights",
    "hard prompts": "the share of prompts that succeed less than 20% of the time",
    "hard weight": "the share of GRPO's weight on prompts that succeed less than 20% of the time",
    "learning rate": "the factor on the learning rate when GRPO's groups are doubled",
}

STATEMENTS = tuple(
    Statement(
        f"plan/{name}",
        "docs/derivations.md, 34",
        f"from rewards alone, a 95% interval of {text} covers at least 95%, within one point",
        "upper bound",
        whose="ours",
    )
    for name, text in TEXTS.items()
)
