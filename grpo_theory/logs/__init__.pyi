from .findings import Findings as Findings
from .group_advantages import advantages as advantages
from .rollout_log import RolloutLog as RolloutLog
from .rollout_log import read_reward_counts as read_reward_counts
from .rollout_log import read_rollouts as read_rollouts
