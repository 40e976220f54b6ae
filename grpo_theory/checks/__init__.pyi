from .trainer_check import TrainerCheck as TrainerCheck
from .trainer_check import check_log as check_log
from .trainer_log import TrainerLog as TrainerLog
from .trainer_log import read_trainer_log as read_trainer_log
