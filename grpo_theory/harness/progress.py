"""Studies computed, and told as it goes: a line for what is done, and for what was lost on the way."""

import sys
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, Executor
from typing import Any

from tqdm import tqdm

from grpo_theory.harness.cluster import ClusterLostError
from grpo_theory.harness.runner import run
from grpo_theory.harness.store import Store
from grpo_theory.harness.study import Study
from grpo_theory.user_text import LONGEST_MESSAGE, printable
from grpo_theory.validation import counted


def tell(line: str) -> None:
    """Print a line, above a bar if there is one, and at once though the output is a pipe."""
    tqdm.write(printable(line, LONGEST_MESSAGE))
    sys.stdout.flush()


def compute(chosen: Sequence[Study], store: Store, executor: Executor, **how: Any) -> None:
    """Compute what is missing of studies, as `run` does with what it is given, and tell of each when its table is written."""
    for study, computed in run(chosen, store, executor, tell=tell, **how):
        tell(f"{study.name}: {counted(computed, 'chunk')} computed, table in {store.root / study.name}.parquet")


def say_lost(error: BrokenExecutor) -> int:
    """Print that workers were lost, and what to do; returns the exit status."""
    why = str(error) if isinstance(error, ClusterLostError) else "a worker has died, perhaps for want of memory"
    message = f"{why}: what was finished is kept, run the same command to go on"
    print(printable(message, LONGEST_MESSAGE), file=sys.stderr)
    return 1
