"""Rollouts of a language model: the gradients of its responses' log-probabilities, made short (extra `lm`)."""

from grpo_theory.language_model.projection import CountSketch as CountSketch
from grpo_theory.language_model.scores import sketch as sketch
