"""Fresh Python processes, each of which answers in JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def run_python(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Any:
    """Run Python from the root of the checkout, and return what it printed."""
    finished = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(finished.stdout)
