"""What the planner says of group sizes, from pilots with scores."""

from grpo_theory.evidence import Statement

SOURCE = "docs/derivations.md, 35"
SHARES = {
    "best size": "the 95% confidence set of group sizes holds the best one",
    "risk": "the recommended group size loses no more than the upper 95% limit of its loss",
    "loss": "the 95% limits of the loss at group size 16 hold it",
}
"""What is to hold in 95% of pilots."""

STATEMENTS = (
    *(
        Statement(f"plan/{name}", SOURCE, f"{text} at least 95% of the time, within two points", "upper bound", whose="ours")
        for name, text in SHARES.items()
    ),
    Statement(
        "plan/regret",
        SOURCE,
        "from a pilot of 512 prompts with 8 responses each the recommended group size has on average at most 5% more error than "
        "the best",
        "upper bound",
        "the best group is at most four times the pilot's",
        whose="ours",
    ),
)
