"""The commands' help is there at once: nothing is imported for it that takes long."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("numba", "numpy", "scipy", "pandas", "matplotlib")
HELP = f"""
import resource, sys
from {{module}} import main

try:
    main({{words}})
except SystemExit as end:
    assert end.code == 0
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, *(name for name in {HEAVY} if name in sys.modules))
"""


@pytest.mark.parametrize(
    "module", ["simulations.__main__", "paper_figures.__main__", "grpo_theory.page.command", "benchmarks.__main__"]
)
def test_help_takes_less_than_half_a_second_and_imports_no_numba(module):
    """But for the benchmarks' command, which imports what it measures: so the check has power."""
    script = HELP.format(module=module, words=["plan", "--help"] if module == "grpo_theory.page.command" else ["--help"])
    run = subprocess.run([sys.executable, "-W", "error", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("usage: ")
    seconds, *heavy = run.stdout.splitlines()[-1].split()
    quick = not heavy and float(seconds) < 0.5
    assert quick == (module != "benchmarks.__main__")
