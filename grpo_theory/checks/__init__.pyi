from .reading import Reading as Reading
from .reading import read_log as read_log
from .trainer_check import TrainerCheck as TrainerCheck
from .trainer_check import check_log as check_log
