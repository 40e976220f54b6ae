"""Rewards of a group to the advantages of its responses: by a table, by coefficients, or by a call of the kernel."""
