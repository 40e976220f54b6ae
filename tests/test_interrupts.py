"""An interrupt is one line and status 130, from the first moment on; and the first line comes before what takes seconds."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
"""Where all tests run in one process, another's threads warn at any fork; what these fork becomes a new program at once."""


def mind_interrupts():
    """Undo what a shell does to a job in the background, whose children ignore interrupts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def started(made, **where):
    """Start a command in a session of its own, which ends with the test whatever becomes of it."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(made, **pipes, **where, preexec_fn=mind_interrupts) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="a terminal's interrupt goes to a group of processes")
@pytest.mark.parametrize("asked", ["0 simulations run --quick", "0.4 simulations verify", "0 paper_figures", "0.4 paper_figures"])
def test_an_interrupt_during_the_imports_is_one_line(tmp_path, asked):
    """After so many seconds of them."""
    seconds, *words = asked.split()
    with started([sys.executable, "-m", *words], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        assert process.stdout.readline().startswith("reading the ")
        time.sleep(float(seconds))
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.startswith("interrupted: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "results").exists()


TRAINING = """
import atexit, time
import grpo_theory as gt
atexit.register(lambda: print(time.process_time()))
problem = gt.gallery.problem("kl-linear")
sizes = {"batch_size": 1, "group_size": 4, "replications": 256, "rng": 1, "workers": WORKERS}
for steps in (8, 5_000_000):
    gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.1), steps=steps, **sizes)
    print(time.process_time(), flush=True)
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_interrupt_ends_a_long_simulation_at_once(workers):
    """It would take minutes; the blocks that threads are at do not go on to their ends, nor threads to further blocks."""
    made = [sys.executable, "-c", TRAINING.replace("WORKERS", workers)]
    with started(made, cwd=ROOT) as process:
        begun = float(process.stdout.readline())
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        said, error = process.communicate(timeout=60)
    assert float(said) - begun < 3.5 * int(workers), "seconds of processors, of which a busy machine gives less"
    assert error.rstrip().endswith("KeyboardInterrupt")


ENDLESS = """
import os
import grpo_theory as gt

SAME = gt.Statement("mine/same", "my notes", "x is x", "identity", margin=gt.Margin(0.0, "exact"))


@gt.check(SAME, cases=[{"x": x} for x in range(4)], broken={"more": 1})
def same(x, more=0):
    while x:
        WORK
    return x, x + more
"""


@contextmanager
def verifying(folder, work, executor):
    (folder / "own_endless.py").write_text(ENDLESS.replace("WORK", work))
    made = [sys.executable, "-m", "grpo_theory", "verify", "own_endless.py", "--workers", "2", "--executor", executor]
    with started(made, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        yield process


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="a terminal's interrupt goes to a group of processes")
@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_an_interrupt_of_chunks_that_do_not_end_is_one_line_at_once(tmp_path, executor):
    with verifying(tmp_path, "open(f'begun {x}', 'w').close()", executor) as process:
        while not {*tmp_path.glob("begun *")}:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        start = time.monotonic()
        _, error = process.communicate(timeout=60)
    assert time.monotonic() - start < 2.0
    assert process.returncode == 130
    assert error == "interrupted: what was finished is kept, run the same command to go on\n"


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_a_study_that_leaves_with_status_0_does_not_pass(tmp_path, executor):
    with verifying(tmp_path, "os._exit(0)", executor) as process:
        _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "os._exit" in error
    assert error.count("\n") == 1
