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

HOLDS = {
    "best size": "the 95% confidence set of group sizes holds the best one",
    "risk": "the recommended group size loses no more than the upper 95% limit of its loss",
    "loss": "the 95% limits of the loss at group size 16 hold it",
}
"""What is to hold in 95% of pilots with gradients."""

FROM_REWARDS = tuple(
    Statement(
        f"plan/{name}",
        "docs/derivations.md, 34",
        f"from rewards alone, a 95% interval of {text} covers at least 95%, within one point",
        "upper bound",
        whose="ours",
    )
    for name, text in TEXTS.items()
)

FROM_GRADIENTS = (
    *(
        Statement(
            f"plan/{name}",
            "docs/derivations.md, 35",
            f"{text} at least 95% of the time, within two points",
            "upper bound",
            whose="ours",
        )
        for name, text in HOLDS.items()
    ),
    Statement(
        "plan/regret",
        "docs/derivations.md, 35",
        "from a pilot of 512 prompts with 8 responses each the recommended group size has on average at most 5% more error than "
        "the best",
        "upper bound",
        "the best group is at most four times the pilot's",
        whose="ours",
    ),
)

TAILS = {
    "c1": "c1",
    "c2": "c2",
    "c3": "c3",
    "error": "the squared error at group size 16",
    "loss": "what group size 16 loses",
}
"""What limits are promised of pilots whose gradients have heavy-tailed lengths."""
WARNINGS = {
    "missed": "of pilots whose gradient lengths are lognormal with 0.7 at most 10% are not warned of",
    "false alarm": "of pilots whose gradient lengths are equal, but for the prompts' success rates, at most 10% are warned of",
}

HEAVY_TAILS = (
    *(
        Statement(
            f"plan/tails/{name}",
            "docs/derivations.md, 35",
            f"the 95% limits of {text} hold it at least 95% of the time, within two points, where lengths are lognormal with 0.7",
            "upper bound",
            whose="ours",
        )
        for name, text in TAILS.items()
    ),
    *(
        Statement(f"plan/tails/{name}", "docs/derivations.md, 35", text, "upper bound", whose="ours")
        for name, text in WARNINGS.items()
    ),
)

STATEMENTS = (*FROM_REWARDS, *FROM_GRADIENTS, *HEAVY_TAILS)
