"""How near is near enough of what is stated of the frontier of whole runs, and what its controls cannot tell."""

TOO_FEW = "24 draws are too few to tell what the control loses there at a level of 1e-4; limits of 95% are in the table"
POWERLESS: dict[tuple[str, str], str] = {
    (name, settings): TOO_FEW
    for name, own in (
        ("P1/64 over 8", ("few prompts, [!n]*", "wrong rewards*", "16 tokens, grpo*", "learned features*", "hard*")),
        ("P1/grows", ("few prompts, grpo, N = 64", "few prompts, grpo, N = 1024", "hard*")),
        ("U9/whole runs", ("few prompts, grpo, N = 1024",)),
        ("P1/interference", ("learned features, rloo*", "few prompts, grpo, N = 1024")),
        ("P8/law", ("few prompts*", "wrong rewards*", "16 tokens*", "learned features*")),
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
