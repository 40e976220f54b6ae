"""Errors of gradient estimates at a fixed policy."""
