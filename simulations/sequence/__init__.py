"""Token sequences: ratios, clips, KL terms, the claims of TIC-GRPO."""
