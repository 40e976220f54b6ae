"""Studies of responses that are sequences: ratios, clips, drift, lengths."""
