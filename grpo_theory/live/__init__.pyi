from .clips import ClippedShares as ClippedShares
from .clips import clipped_shares as clipped_shares
from .monitor import Monitor as Monitor
from .monitor import Reading as Reading
from .step_advice import StepAdvice as StepAdvice
from .step_advice import advise_step as advise_step
from .trainer_callback import TRLCallback as TRLCallback
