"""Coverage of confidence intervals."""
