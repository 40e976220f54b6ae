"""Use an installed wheel where no cache can be written: its files, the library, its commands; machine code is kept at home.

To be run from outside of the checkout, by the Python that has the wheel.
"""

import os
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

TOP = Path(__file__).resolve().parents[1]
USE = """
import time
import grpo_theory as gt

problem = gt.gallery.problem("lm-few-shot")
law = gt.group_size_law(problem, problem.theta)
sizes = {"batch_size": 4, "group_size": 8}
start = time.perf_counter()
run = gt.simulate_gradients(problem, problem.theta, ["rloo"], **sizes, replications=4096, rng=0)
print(time.perf_counter() - start)
assert abs(run.mse[0] - law.mse(**sizes)) < 4.9 * run.mse_standard_error[0]
"""


def main() -> None:
    """Compare the files with the checkout's, simulate twice, compiling once, plan from a log, and ask every command for help."""
    (package,) = (Path(place) for place in find_spec("grpo_theory").submodule_search_locations)
    assert package.is_relative_to(sys.prefix), f"this is not the installed package: {package}"
    source = TOP / "grpo_theory"
    files = {path.relative_to(source) for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    missing = sorted(str(path) for path in files if not (package / path).is_file())
    assert not missing, f"the wheel lacks {', '.join(missing)}"
    # A file stands where every cache beside the sources would be, because permissions do not keep the superuser from writing.
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir() and path.name != "__pycache__")]:
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)
        (folder / "__pycache__").touch()
    with TemporaryDirectory() as home:
        places = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))} | {"HOME": home}
        kept = []
        for which in ("first", "second"):
            done = subprocess.run([sys.executable, "-c", USE], env=places, stdout=subprocess.PIPE, text=True, check=True)
            print(f"{which} simulation: {float(done.stdout):.1f} s")
            kept.append({str(path): path.stat().st_mtime_ns for path in Path(home).rglob("*.nbc")})
        plan = [Path(sys.executable).with_name("grpo-theory"), "plan", TOP / "examples" / "rollouts.jsonl", "--budget", "1024"]
        subprocess.run(plan, env=places, check=True, stdout=subprocess.DEVNULL)
    assert kept[0], "no machine code was kept"
    assert kept[0] == kept[1], "the second process compiled anew"
    for command in distribution("grpo-theory").entry_points:
        subprocess.run([Path(sys.executable).with_name(command.name), "--help"], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
