"""Studies of responses that are sequences: ratios, clips, KL terms, drift, lengths."""
