"""Rollouts of a language model: the gradients of its responses' log-probabilities, made short (extra `lm`)."""

from grpo_theory.language_model.scores import CountSketch, sketch

__all__ = ["CountSketch", "sketch"]
__dir__ = __all__.copy
