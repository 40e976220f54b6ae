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
    main(["--help"])
except SystemExit as end:
    assert end.code == 0
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, *(name for name in {HEAVY} if name in sys.modules))
"""


def helped(module):
    """Return the processor seconds of a command's help in a process of its own, and what was imported of the heavy packages."""
    script = HELP.format(module=module)
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("usage: ")
    seconds, *heavy = run.stdout.splitlines()[-1].split()
    return float(seconds), heavy


@pytest.mark.parametrize("module", ["simulations.__main__", "paper_figures.__main__", "grpo_theory.page.command"])
def test_help_takes_less_than_half_a_second_and_imports_no_numba(module):
    seconds, heavy = helped(module)
    assert not heavy
    assert seconds < 0.5


def test_the_check_has_power():
    """The benchmarks' command imports what it measures."""
    assert "numpy" in helped("benchmarks.__main__")[1]
