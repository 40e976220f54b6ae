from .findings import Findings as Findings
from .group_advantages import advantages as advantages
from .reader import RolloutLog as RolloutLog
from .reader import read_rollouts as read_rollouts
from .schema import schemas as schemas
