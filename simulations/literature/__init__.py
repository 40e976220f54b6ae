"""Theorems of papers by others, one file a paper: exact, and small enough to read."""
