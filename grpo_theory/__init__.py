"""What is true about GRPO and its relatives: exact theory, Monte Carlo and verdicts."""
