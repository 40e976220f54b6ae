"""`grpo-theory watch`: a line for each step's file, half-written ones waited for, and an end with Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables import write

from grpo_theory.page.advice import watch_command
from grpo_theory.page.advice.watch_command import SETTLED, STUCK, StepFiles, ends_whole
from grpo_theory.page.command import main


def rows(prompts=3, size=4, successes=(0, 1, 1, 0), **more):
    """Return rows as verl writes them."""
    return [
        {"input": f"prompt {p}", "output": f"answer {n}", "gts": "7", "score": float(successes[n % len(successes)]), "step": 1}
        | more
        for p in range(prompts)
        for n in range(size)
    ]


def watched(capsys, folder, *options):
    """Run the command once; return its status and what it printed."""
    status = main(["watch", str(folder), "--once", *options])
    return status, *capsys.readouterr()


def looked(capsys, monkeypatch, folder, *deeds):
    """Run the command with a deed after each look, and an interrupt after the last; return what it printed."""
    left = list(deeds)

    def sleep(_):
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    monkeypatch.setattr(watch_command.time, "sleep", sleep)
    assert main(["watch", str(folder)]) == 0
    return capsys.readouterr()


def test_a_half_written_file_is_not_whole_at_any_byte(tmp_path):
    entries = rows(1, 2, note="two } braces\nand a line")
    path, lines = tmp_path / "1.jsonl", [json.dumps(one) for one in entries]
    text = write(path, entries).read_bytes()
    for cut in range(1, len(text) + 1):
        path.write_bytes(text[:cut])
        last = [one for one in text[:cut].decode().split("\n") if one][-1]
        assert ends_whole(path) == (last in lines), cut


def test_a_file_that_pauses_at_a_lines_end_is_waited_for_and_read_again_if_it_grows(tmp_path, monkeypatch, capsys):
    """A short pause is waited for. After a long one the step is read again, and its last line is the right one."""
    path = tmp_path / "1.jsonl"
    first, second, third = (partial(write, path, rows(count)) for count in (1, 2, 3))
    first()
    pauses = [dict] * (SETTLED - 1)  # a deed that does nothing
    out, _ = looked(capsys, monkeypatch, tmp_path, *pauses, second, *pauses, dict, third, *pauses, dict)
    said = ["step 1: 2 groups of 4", "step 1 (its file has grown, read again): 3 groups of 4"]
    assert [one.partition(", mean")[0] for one in out.splitlines()] == said
    files = StepFiles(tmp_path)
    assert files.whole() == []
    write(tmp_path / "2.jsonl", rows())
    assert files.whole() == [(1, path, False)], "the next step has begun"
    assert files.whole(ended=True) == [(2, tmp_path / "2.jsonl", False)]


def test_a_file_that_never_becomes_whole_is_said_once(tmp_path, monkeypatch, capsys):
    (tmp_path / "1.jsonl").write_text("prompt,reward\na,1\n")
    out, err = looked(capsys, monkeypatch, tmp_path, *[dict] * (3 * STUCK))
    assert (out, err) == ("", "1.jsonl: not whole, and it does not grow; left out until it does\n")
    assert "1.jsonl" not in looked(capsys, monkeypatch, tmp_path, *[dict] * (STUCK - 1)).err


def test_the_completions_of_trl_are_read(tmp_path, capsys):
    names, path = ("step", "prompt", "completion", "accuracy", "advantage"), tmp_path / "completions_00005.parquet"
    entries = [(5, "ab"[n // 4], f"answer {n}", float(n in (1, 4, 5, 6, 7)), 0.0) for n in range(8)]
    pq.write_table(pa.Table.from_pylist([dict(zip(names, one, strict=True)) for one in entries]), path)
    status, out, err = watched(capsys, tmp_path)
    assert (status, err) == (0, "")
    assert out.startswith("step 5: 2 groups of 4, mean reward 0.625, mixed 50% (")
    path.write_bytes(path.read_bytes()[:-1])
    assert watched(capsys, tmp_path)[2].startswith("completions_00005.parquet: half written, left out\n")


def test_a_line_for_each_step_and_a_remark_under_its_own(tmp_path, capsys):
    write(tmp_path / "1.jsonl", rows())
    write(tmp_path / "2.jsonl", rows(2, 4, [1]))
    status, out, err = watched(capsys, tmp_path)
    assert (status, err) == (0, "")
    first, second = out.splitlines()
    assert first.startswith("step 1: 3 groups of 4, mean reward 0.5, mixed 100% (")
    assert second.startswith("step 2: 2 groups of 4, mean reward 1, mixed 0% (")
    assert "all right 100% (" in second
    write(tmp_path / "1.jsonl", rows(20, 4, [0]))
    first, remark, second = watched(capsys, tmp_path)[1].splitlines()
    assert first.endswith("the log has one reward, and right and wrong cannot be told apart")
    assert remark.startswith("  Check the reward function: all rewards are equal")
    assert "all right 100% (" in second, "the steps before have other rewards"


def test_sketches_give_efficiency_and_the_best_size_of_enough_prompts(tmp_path, capsys):
    rng = np.random.default_rng(0)
    entries = [one | {"sketch": (rng.standard_normal(4) + one["score"]).tolist()} for one in rows(40, 6)]
    write(tmp_path / "1.jsonl", entries)
    line = watched(capsys, tmp_path, "--estimator", "verl_grpo")[1].splitlines()[0]
    assert re.search(r", efficiency 0\.\d+, best group size [2-6] \([2-6] to 6\)$", line), "a group tells of its size or less"
    write(tmp_path / "1.jsonl", entries[:18])
    assert watched(capsys, tmp_path)[1].splitlines()[0].endswith("sketches of 3 prompts: too few for a group size")


def test_half_written_and_bad_files_are_named_and_the_others_read(tmp_path, capsys):
    for name in ("2.jsonl", "11.jsonl", "step_12.jsonl", "notes.jsonl", ".5.jsonl", "7.json"):
        write(tmp_path / name, rows())
    write(tmp_path / "9.jsonl", [{"input": "a", "output": "b\x1b[2J"}] * 4)
    path = write(tmp_path / "10.jsonl", rows())
    path.write_bytes(path.read_bytes()[:-9])
    (tmp_path / "13.jsonl").touch()
    status, out, err = watched(capsys, tmp_path)
    assert (status, err) == (0, "10.jsonl: half written, left out\n13.jsonl: empty, left out\n")
    assert [line.partition(":")[0] for line in out.splitlines()] == ["step 2", "step 9", "step 11", "step 12"]
    assert "step 9: not read: " in out
    assert "\x1b" not in out


def test_mistakes_are_one_line_and_status_2(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for options, message in (
        (("nowhere",), "DIR must be a folder with a file for each step, as verl's rollout_data_dir; 'nowhere' does not exist"),
        ((".", "--estimator", "trl_grpo_batch"), "depend on the other groups of the batch"),
        ((".", "--interval", "0"), "--interval must be finite and above 0"),
        ((".",), "DIR must hold files named by their step, as 7.jsonl; '.' has none"),
    ):
        status, out, err = watched(capsys, *options)
        assert (status, out, err.count("\n"), message in err) == (2, "", 1, True)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_it_waits_for_files_and_ends_with_an_interrupt(tmp_path):
    # A job in the background ignores interrupts, and hands that down to what it starts: here a person sits at a terminal.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    run = "import sys; from grpo_theory.page.command import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-W", "error", "-c", heard + run, "watch", str(tmp_path), "--interval", "0.05"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline().startswith("waiting for files STEP.jsonl or ..._STEP.parquet in ")
        for step, line in ((1, "step 1: 3 groups of 4"), (2, "step 2: ")):
            write(tmp_path / f"{step}.jsonl", rows())
            assert process.stdout.readline().startswith(line)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")
