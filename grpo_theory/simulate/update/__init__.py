"""Covectors to the next iterate of training runs."""
