from .monitor import Monitor as Monitor
from .monitor import Reading as Reading
from .trainer_callback import TRLCallback as TRLCallback
