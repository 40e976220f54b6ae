"""Measures the yardsticks of the gradient simulator: ratios in one run, on one machine, of the same numbers computed."""
