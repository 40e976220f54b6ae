"""Data as a user has it: rollouts of one batch, the record of one training run."""

from grpo_theory.samples.findings import Findings as Findings
from grpo_theory.samples.groups import Groups as Groups
from grpo_theory.samples.hessian import rollout_hessian as rollout_hessian
from grpo_theory.samples.ragged import RaggedRollouts as RaggedRollouts
from grpo_theory.samples.record import TrainingRecord as TrainingRecord
from grpo_theory.samples.reward_counts import RewardCounts as RewardCounts
from grpo_theory.samples.rollout_log import RolloutLog as RolloutLog
from grpo_theory.samples.rollout_log import read_reward_counts as read_reward_counts
from grpo_theory.samples.rollout_log import read_rollouts as read_rollouts
from grpo_theory.samples.rollouts import Rollouts as Rollouts
