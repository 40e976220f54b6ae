"""What is practised beside the papers."""

from grpo_theory.evidence import Statement
from simulations.claims.u import DERIVED, PARTS

DAPO = "beside arXiv 2503.14476 (DAPO)"

STATEMENTS = (
    Statement(
        "dynamic sampling",
        DAPO,
        "only groups whose rewards differ are used, uniform ones dropped or redrawn: which objective is climbed, at what cost?",
        PARTS,
    ),
    *(
        Statement(f"dynamic sampling/{name}", DERIVED(23), text, "equality", "binary reward", whose="ours")
        for name, text in (
            (
                "redrawn",
                "uniform groups redrawn, prompts too: the mean update is the plain one over P(mixed): the same direction",
            ),
            ("noise", "uniform groups redrawn, prompts too: the mean square of what a group adds is the plain one over P(mixed)"),
            ("rollouts", "it costs 1/P(mixed) groups for each that is used"),
            ("dropped", "uniform groups dropped from batches of B: the plain mean update times (1 - (1 - P(mixed))^B)/P(mixed)"),
            ("same prompt", "uniform groups redrawn at the same prompt: E[g(X)/P(mixed | X)], which is another direction"),
        )
    ),
    Statement(
        "efficiency",
        DERIVED(37),
        "estimators with different means, compared by what the best step of each gains: (g . E ghat)^2/(||g||^2 E||ghat||^2)",
        PARTS,
        whose="ours",
    ),
    *(
        Statement(f"efficiency/{name}", DERIVED(37), text, kind, whose="ours")
        for name, text, kind in (
            ("simulated", "simulated efficiency = exact efficiency by enumeration, G = 64", "equality"),
            (
                "gain",
                "SmolLM2's heads: the largest mean gain of a step, over the exact gradient's, is the efficiency within a fifth",
                "equality",
            ),
            (
                "larger groups",
                "one step, 1,024 responses: GRPO is most efficient with larger groups than the leave-one-out mean (RLOO)",
                "ordering",
            ),
            (
                "best sizes",
                "one step, 1,024 responses, each with its own best group size: GRPO is more efficient than RLOO",
                "ordering",
            ),
            (
                "at 32",
                "one step, 1,024 responses: from the best group size to 32 GRPO loses less of its efficiency than RLOO does",
                "ordering",
            ),
        )
    ),
    Statement(
        "division",
        "beside arXiv 2601.23135",
        "two reward values, answers of one token, a log-linear policy or a frozen model's head: advantages are divided by the "
        "group's standard deviation (grpo) or not (dr_grpo): which has the higher success over a whole run?",
        PARTS,
    ),
    Statement(
        "division/pays",
        "measured",
        "prompts share features, groups of 4 to 64, each at its own best constant step: divided, the success averaged over a run "
        "is higher by at least one point of a hundred",
        "ordering",
        whose="ours",
    ),
    Statement(
        "division/harmless", "measured", "there, divided, it is lower by at most one point of a hundred", "ordering", whose="ours"
    ),
    Statement(
        "division/printed steps",
        "measured",
        "at the paper's steps, 1/(2X^2) divided and 1/X^2 not: divided, it is higher by at least one point of a hundred",
        "ordering",
        whose="ours",
    ),
)
