"""One file a figure; each reads tables and never simulates."""
