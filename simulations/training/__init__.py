"""Training runs: the gap, its bounds, the group size that trains best."""
