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
        {
            "input": f"prompt {p}",
            "output": f"answer {n}",
            "gts": "7",
            "score": float(successes[n % len(successes)]),
            "step": 1,
            **more,
        }
        for p in range(prompts)
        for n in range(size)
    ]


def dumped(path, entries):
    """Write a file as verl does."""
    path.write_text("\n".join(json.dumps(one, ensure_ascii=False) for one in entries) + "\n", encoding="utf-8")
    return path


# ---- files


def test_files_come_in_the_order_of_their_steps_and_once(tmp_path):
    for step in (10, 9, 100):
        dumped(tmp_path / f"{step}.jsonl", rows())
    for other in ("notes.jsonl", ".5.jsonl", "7.json"):
        dumped(tmp_path / other, rows())
    files = StepFiles(tmp_path)
    assert [step for step, _ in files.whole()] == [9, 10], "the newest may still grow"
    assert [step for step, _ in files.whole()] == [100]
    assert files.whole() == []
    dumped(tmp_path / "step_101.jsonl", rows())
    assert [step for step, _ in files.whole(ended=True)] == [101]


def test_a_half_written_file_is_waited_for_at_every_byte(tmp_path):
    entries = rows(1, 2, note="two } braces\nand a line")
    path, lines = tmp_path / "1.jsonl", [json.dumps(one) for one in entries]
    text, whole = dumped(path, entries).read_bytes(), 0
    for cut in range(1, len(text) + 1):
        path.write_bytes(text[:cut])
        last = [one for one in text[:cut].decode().split("\n") if one][-1]
        assert ends_whole(path) == (last in lines), cut
        whole += last in lines
    assert whole == 4  # after each line's brace, and after its end


def test_a_file_that_grows_is_waited_for_even_between_two_lines(tmp_path):
    files, text = StepFiles(tmp_path), "".join(json.dumps(one) + "\n" for one in rows())
    lines = text.splitlines(keepends=True)
    for end in (4, 8, 12):
        (tmp_path / "1.jsonl").write_text("".join(lines[:end]))
        assert files.whole() == []
    assert [step for step, _ in files.whole()] == [1]


def test_a_last_line_of_any_length_is_found(tmp_path):
    path = dumped(tmp_path / "1.jsonl", rows(note="x" * (20 * LAST)))
    assert ends_whole(path)
    path.write_bytes(path.read_bytes()[:-3])
    assert not ends_whole(path)
    path.write_bytes(b"")
    assert not ends_whole(path)
    path.write_bytes(b"[" * 100_000)
    assert not ends_whole(path)


# ---- the command


def test_a_line_for_each_step(tmp_path, capsys):
    dumped(tmp_path / "1.jsonl", rows())
    dumped(tmp_path / "2.jsonl", rows(2, 4, [1]))
    assert main(["watch", str(tmp_path), "--once"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "step 1: 3 groups of 4, mean reward 0.5, signal in 100% of them (29% to 100%)",
        "step 2: 2 groups of 4, mean reward 1, signal in 0% of them (0% to 84%)",
    ]
    assert err == ""


def test_a_remark_stands_under_its_step(tmp_path, capsys):
    dumped(tmp_path / "1.jsonl", rows(20, 4, [0]))
    assert main(["watch", str(tmp_path), "--once"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("step 1: 20 groups of 4, mean reward 0, signal in 0%")
    assert second.startswith("  0% of the groups have signal (0% to 17%). A group whose rewards are all equal")


def test_sketches_give_efficiency_and_the_best_size(tmp_path, capsys):
    rng = np.random.default_rng(0)
    entries = [one | {"sketch": (rng.standard_normal(4) + one["score"]).tolist()} for one in rows(24, 6)]
    dumped(tmp_path / "1.jsonl", entries)
    assert main(["watch", str(tmp_path), "--once", "--estimator", "verl_grpo"]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    log = gt.read_rollouts(tmp_path / "1.jsonl")
    advice = gt.live.advise_step(log.rollouts, 144, estimator="verl_grpo")
    assert line.endswith(f"efficiency {advice.efficiency:.2g}, best group size {advice.best} ({advice.low} to {advice.high})")


def test_half_written_and_bad_files_are_named_and_the_others_read(tmp_path, capsys):
    dumped(tmp_path / "1.jsonl", rows())
    dumped(tmp_path / "2.jsonl", [{"input": "a", "output": "b\x1b[2J"}] * 4)
    path = dumped(tmp_path / "3.jsonl", rows())
    path.write_bytes(path.read_bytes()[:-9])
    dumped(tmp_path / "4.jsonl", rows())
    assert main(["watch", str(tmp_path), "--once"]) == 0
    out, err = capsys.readouterr()
    assert [line.partition(":")[0] for line in out.splitlines()] == ["step 1", "step 2", "step 4"]
    assert "step 2: not read: reward must name the column of the rewards" in out
    assert err == "3.jsonl: half written, left out\n"


def test_columns_are_named_as_for_plan(tmp_path, capsys):
    dumped(tmp_path / "1.jsonl", [{"question": "a", "points": n % 2} for n in range(4)])
    assert main(["watch", str(tmp_path), "--once", "--reward", "points", "--prompt", "question"]) == 0
    assert capsys.readouterr().out.startswith("step 1: 1 group of 4, mean reward 0.5")


def test_rows_without_a_reward_are_left_out_by_the_option_that_the_message_recommends(tmp_path, capsys):
    entries = rows()
    entries[5]["score"] = None
    dumped(tmp_path / "1.jsonl", entries)
    assert main(["watch", str(tmp_path), "--once"]) == 2
    assert "row 6 (empty). Choose unscored='leave' (--unscored leave)" in capsys.readouterr().out
    assert main(["watch", str(tmp_path), "--once", "--unscored", "leave"]) == 0
    assert capsys.readouterr().out.startswith("step 1: 3 groups of 3 to 4, mean reward 0.455")
    assert main(["watch", str(tmp_path), "--once", "--unscored", "zero"]) == 0
    assert capsys.readouterr().out.startswith("step 1: 3 groups of 4, mean reward 0.417")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("nowhere",), "DIR must be a folder with a file for each step, as verl's rollout_data_dir; 'nowhere' does not exist"),
        ((".", "--estimator", "verl_grpoo"), "verl_grpoo"),
        ((".", "--estimator", "trl_grpo_batch"), "depend on the other groups of the batch"),
        ((".", "--interval", "0"), "--interval must be finite and above 0"),
        ((".",), "DIR must hold files named by their step, as 7.jsonl; '.' has none"),
    ],
)
def test_mistakes_are_one_line_and_status_2(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["watch", *options, "--once"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("grpo-theory watch: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_it_waits_for_files_and_ends_with_an_interrupt(tmp_path):
    # A job in the background ignores interrupts, and hands that down to what it starts: here a person sits at a terminal.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    run = "import sys; from grpo_theory.page.command import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-W", "error", "-c", heard + run, "watch", str(tmp_path), "--interval", "0.05"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline().startswith("waiting for files STEP.jsonl in ")
        dumped(tmp_path / "1.jsonl", rows())
        assert process.stdout.readline().startswith("step 1: 3 groups of 4")
        dumped(tmp_path / "2.jsonl", rows())
        assert process.stdout.readline().startswith("step 2: ")
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")
