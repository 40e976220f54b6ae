"""Monte Carlo in plain numba: draw, advantage, logit gradient, then observe, or move and go on."""

from grpo_theory.simulate.draws import LANES as BLOCK_RUNS
from grpo_theory.simulate.gradients import GradientSimulation, block_replications, simulate_gradients
from grpo_theory.simulate.optimisers import SGD, Adam, Ball, Optimiser
from grpo_theory.simulate.training import TrainingRuns, simulate_training

__all__ = ["BLOCK_RUNS", "SGD", "Adam", "Ball", "GradientSimulation", "Optimiser", "TrainingRuns", "block_replications"]
__all__ += ["simulate_gradients", "simulate_training"]
__dir__ = __all__.copy
