"""What papers are called."""

PAPERS = {
    "2603.01162": "Demystifying GRPO",
    "2508.02833": "TIC-GRPO",
    "2601.23135": "Why GRPO Needs Normalization",
    "2605.17570": "How Off-Policy Can GRPO Be?",
    "2603.12151": "IsoCompute",
    "2510.00977": "2-GRPO",
    "2510.01180": "BroRL",
    "2510.13786": "ScaleRL",
    "2503.14476": "DAPO",
}
"""What papers are called in tables, by their numbers at arXiv; the others go by the number alone."""
