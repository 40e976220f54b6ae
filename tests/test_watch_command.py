"""`grpo-theory watch`: a line for each step's file, half-written ones waited for, and an end with Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.live.step_files import LAST, StepFiles, ends_whole
from grpo_theory.page.command import main


def rows(prompts=3, size=4, successes=(0, 1, 1, 0), **more):
    """Return rows as verl writes them."""
    return [
        {"input": f"prompt {p}", "output": f"answer {n}", "gts": "7", "score": float(successes[n % len(successes)]), "step": 1}
        | more
        for p in range(prompts)
        for n in range(size)
    ]


def dumped(path, entries):
    """Write a file as verl does."""
    path.write_text("\n".join(json.dumps(one, ensure_ascii=False) for one in entries) + "\n", encoding="utf-8")
    return path


def watched(capsys, folder, *options):
    """Run the command once; return its status and what it printed."""
    status = main(["watch", str(folder), "--once", *options])
    return status, *capsys.readouterr()


def test_a_half_written_file_is_waited_for_at_every_byte_and_between_two_lines(tmp_path):
    entries = rows(1, 2, note="two } braces\nand a line")
    path, lines = tmp_path / "1.jsonl", [json.dumps(one) for one in entries]
    text = dumped(path, entries).read_bytes()
    for cut in range(1, len(text) + 1):
        path.write_bytes(text[:cut])
        last = [one for one in text[:cut].decode().split("\n") if one][-1]
        assert ends_whole(path) == (last in lines), cut
    files = StepFiles(tmp_path)
    for count in (1, 2, 3):
        dumped(path, rows()[: 4 * count])
        assert files.whole() == []
    assert [step for step, _ in files.whole()] == [1]
    assert ends_whole(dumped(path, rows(note="x" * (20 * LAST))))


def test_a_line_for_each_step_and_a_remark_under_its_own(tmp_path, capsys):
    dumped(tmp_path / "1.jsonl", rows())
    dumped(tmp_path / "2.jsonl", rows(2, 4, [1]))
    status, out, err = watched(capsys, tmp_path)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "step 1: 3 groups of 4, mean reward 0.5, signal in 100% of them (29% to 100%)",
        "step 2: 2 groups of 4, mean reward 1, signal in 0% of them (0% to 84%)",
    ]
    dumped(tmp_path / "1.jsonl", rows(20, 4, [0]))
    assert watched(capsys, tmp_path)[1].splitlines()[1].startswith("  0% of the groups have signal (0% to 17%). ")


def test_sketches_give_efficiency_and_the_best_size(tmp_path, capsys):
    rng = np.random.default_rng(0)
    entries = [one | {"sketch": (rng.standard_normal(4) + one["score"]).tolist()} for one in rows(24, 6)]
    log = gt.read_rollouts(dumped(tmp_path / "1.jsonl", entries))
    line = watched(capsys, tmp_path, "--estimator", "verl_grpo")[1].splitlines()[0]
    advice = gt.live.advise_step(log.rollouts, 144, estimator="verl_grpo")
    assert line.endswith(f"efficiency {advice.efficiency:.2g}, best group size {advice.best} ({advice.low} to {advice.high})")


def test_half_written_and_bad_files_are_named_and_the_others_read(tmp_path, capsys):
    for name in ("2.jsonl", "11.jsonl", "step_12.jsonl", "notes.jsonl", ".5.jsonl", "7.json"):
        dumped(tmp_path / name, rows())
    dumped(tmp_path / "9.jsonl", [{"input": "a", "output": "b\x1b[2J"}] * 4)
    path = dumped(tmp_path / "10.jsonl", rows())
    path.write_bytes(path.read_bytes()[:-9])
    status, out, err = watched(capsys, tmp_path)
    assert (status, err) == (0, "10.jsonl: half written, left out\n")
    assert [line.partition(":")[0] for line in out.splitlines()] == ["step 2", "step 9", "step 11", "step 12"]
    assert "step 9: not read: reward must name the column of the rewards" in out


def test_columns_and_rows_are_named_as_for_plan(tmp_path, capsys):
    entries = [{"question": f"q{n // 4}", "points": None if n == 5 else float(n % 4 in (1, 2))} for n in range(12)]
    dumped(tmp_path / "1.jsonl", entries)
    named = ("--reward", "points", "--prompt", "question")
    status, out, _ = watched(capsys, tmp_path, *named)
    assert (status, "row 6 (empty). Choose unscored='leave' (--unscored leave)" in out) == (2, True)
    for how, line in (("leave", "3 groups of 3 to 4, mean reward 0.455"), ("zero", "3 groups of 4, mean reward 0.417")):
        status, out, _ = watched(capsys, tmp_path, *named, "--unscored", how)
        assert (status, out.startswith(f"step 1: {line}")) == (0, True)


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
        assert process.stderr.readline().startswith("waiting for files STEP.jsonl in ")
        for step, line in ((1, "step 1: 3 groups of 4"), (2, "step 2: ")):
            dumped(tmp_path / f"{step}.jsonl", rows())
            assert process.stdout.readline().startswith(line)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")
