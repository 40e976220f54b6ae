"""Monte Carlo in plain numba: draw, advantage, logit gradient, then observe, or move and go on."""

from grpo_theory.simulate.gradient_simulation import GradientSimulation as GradientSimulation
from grpo_theory.simulate.gradients import block_replications as block_replications
from grpo_theory.simulate.gradients import simulate_gradients as simulate_gradients
from grpo_theory.simulate.optimisers import SGD as SGD
from grpo_theory.simulate.optimisers import Adam as Adam
from grpo_theory.simulate.optimisers import Ball as Ball
from grpo_theory.simulate.optimisers import Optimiser as Optimiser
from grpo_theory.simulate.streams import LANES as BLOCK_RUNS
from grpo_theory.simulate.training import TrainingRuns as TrainingRuns
from grpo_theory.simulate.training import simulate_training as simulate_training

__all__ = [
    "BLOCK_RUNS",
    "SGD",
    "Adam",
    "Ball",
    "GradientSimulation",
    "Optimiser",
    "TrainingRuns",
    "block_replications",
    "simulate_gradients",
    "simulate_training",
]
