"""Where statements stand: the papers, and our derivations."""

DEMYSTIFYING = "arXiv 2603.01162"
"""Demystifying GRPO: Its Policy Gradient is a U-Statistic."""
TIC_GRPO = "arXiv 2508.02833"
NORMALIZATION = "arXiv 2601.23135"
"""Why GRPO Needs Normalization."""
MU_GRPO = "arXiv 2605.17570"
"""How Off-Policy Can GRPO Be?"""
CORRECTION, OURS = "correction", "ours"
UNCORRELATED = "Assumption 2: ||W||^2 and Z are uncorrelated given X"


def derived(section: int) -> str:
    """Return the source of what stands in a section of the derivations."""
    return f"docs/derivations.md, {section}"
