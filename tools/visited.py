"""Count the files of grpo_theory that one call visits after it has been called before: how far a reader has to follow it.

Run from the top folder:  .venv/bin/python tools/visited.py > /dev/null
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP))

import grpo_theory as gt  # noqa: E402
from grpo_theory.page.command import main  # noqa: E402
from simulations.gradient import error_law  # noqa: E402

LOG = TOP / "examples" / "rollouts.jsonl"


def visited(call: Callable[[], Any], folders: tuple[str, ...] = ("grpo_theory",)) -> list[str]:
    """Return the files in these folders of which any function runs in a call, the second one."""
    call()
    found = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            found.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    inside = (Path(name) for name in found if name.endswith(".py"))
    return sorted(str(path.relative_to(TOP)) for path in inside if any(path.is_relative_to(TOP / folder) for folder in folders))


def calls() -> dict[str, Callable[[], Any]]:
    """Return the calls by name."""
    problem = gt.gallery.problem("tabular")
    asked, sizes = (problem, problem.theta, "rloo"), {"batch_size": 4, "group_size": 8}
    runs = {"replications": 100, "rng": 1, "workers": 1}
    return {
        "moments": lambda: gt.moments(problem, problem.theta),
        "gradient_law": lambda: gt.gradient_law(*asked, **sizes).mse,
        "simulate_gradients": lambda: gt.simulate_gradients(*asked, **sizes, **runs),
        "simulate_training": lambda: gt.simulate_training(*asked, gt.Constant(0.1), **sizes, **runs, steps=4),
        "a log to its plan": lambda: main(["plan", str(LOG), "--budget", "1024", "--group-size", "8"]),
        "a cell of error_law": lambda: error_law.laws("tabular"),
    }


if __name__ == "__main__":
    for name, call in calls().items():
        print(f"{name}: {len(files := visited(call))}", *files, sep="\n    ", file=sys.stderr)
