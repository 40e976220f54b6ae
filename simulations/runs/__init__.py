"""Whole training runs at a fixed number of responses: group size, batch, updates, allocation and staleness."""
