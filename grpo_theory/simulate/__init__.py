"""Monte Carlo: streams, blocks and compiled drivers."""

from grpo_theory.simulate.gradients import block_replications as block_replications
from grpo_theory.simulate.gradients import simulate_gradients as simulate_gradients
from grpo_theory.simulate.record import TrainingRecord as TrainingRecord
from grpo_theory.simulate.record import rollout_hessian as rollout_hessian
from grpo_theory.simulate.record import simulate_records as simulate_records
from grpo_theory.simulate.summary import GradientSimulation as GradientSimulation
from grpo_theory.simulate.training import Ball as Ball
from grpo_theory.simulate.training import TrainingRuns as TrainingRuns
from grpo_theory.simulate.training import simulate_training as simulate_training
