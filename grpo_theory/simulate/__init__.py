"""Monte Carlo: streams, blocks, stages and compiled drivers."""

from grpo_theory.simulate.gradient_simulation import GradientSimulation as GradientSimulation
from grpo_theory.simulate.gradients import block_replications as block_replications
from grpo_theory.simulate.gradients import simulate_gradients as simulate_gradients
from grpo_theory.simulate.records import simulate_records as simulate_records
from grpo_theory.simulate.training import TrainingRuns as TrainingRuns
from grpo_theory.simulate.training import simulate_training as simulate_training
from grpo_theory.simulate.training_blocks import BLOCK_RUNS as BLOCK_RUNS
from grpo_theory.simulate.update.iterates import Ball as Ball
from grpo_theory.simulate.update.optimiser import MOVE as MOVE
from grpo_theory.simulate.update.optimiser import SGD as SGD
from grpo_theory.simulate.update.optimiser import Adam as Adam
from grpo_theory.simulate.update.optimiser import Optimiser as Optimiser
