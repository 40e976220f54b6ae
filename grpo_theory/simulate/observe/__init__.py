"""Covectors to errors, powers and gains of gradient estimates, and to their moments."""
