"""Where the command writes: never over what it reads, into pipes and devices without replacing them, and whole or not at all."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest
from tables import rows, write

import grpo_theory as gt
from grpo_theory.page.command import main

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes and devices are no files there")


@pytest.fixture
def table(tmp_path):
    """A log with sketches, in a folder of its own."""
    return write(tmp_path / "in" / "rollouts.jsonl", rows(6, 4))


def told(capsys, *arguments):
    """Run the command; return its status and what it printed."""
    status = main(["plan", *map(str, arguments), "--budget", "64"])
    return status, *capsys.readouterr()


def in_shell(line, table, **environment):
    """Run the command in a shell, with its streams as the line puts them; TABLE and PLAN in it stand for themselves."""
    plan = f"{sys.executable} -W error -c 'import sys; from grpo_theory.page.command import main; sys.exit(main())' plan"
    text = line.replace("PLAN", f"{plan} {table} --budget 64").replace("TABLE", str(table))
    known = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(["bash", "-c", text], cwd=table.parent, env=known, capture_output=True, text=True, check=False)


def contents(folder):
    """Return the bytes of all files under a folder, by their paths."""
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def test_the_table_is_never_written_over(capsys, tmp_path, table):
    """By its name, by another way to it, by a link, or by a file in the folder that is the table."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "hard.jsonl").hardlink_to(table)
    (other / "soft.jsonl").symlink_to(table)
    before = contents(tmp_path)
    ways = (table, other / ".." / "in" / "rollouts.jsonl", other / "hard.jsonl", other / "soft.jsonl")
    for read, target, message in (
        *((table, one, "must not be the table itself") for one in ways),
        (table.parent, table.parent / "plan.json", "must be outside the table's folder"),
        (other, table, f"must not be {other / 'hard.jsonl'}, which is read as part of the table"),
    ):
        for option in ("--json", "--html"):
            status, out, err = told(capsys, read, option, target)
            assert (status, out) == (2, "")
            assert f"{option} {message}" in err
    for line in ("PLAN >> TABLE", "PLAN --json /dev/fd/3 3>> TABLE"):
        done = in_shell(line, table)
        assert (done.returncode, "must not be the table itself" in done.stderr) == (2, True)
    assert contents(tmp_path) == before


def test_outputs_that_cannot_be_written_are_refused_before_anything_is_read(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    long = tmp_path / ("a" * 300)  # which no check of rights sees
    for given, message in (
        (("--json", tmp_path / "none" / "a.json"), "--json must be a file in a folder that exists"),
        (("--json", tmp_path / "a", "--html", tmp_path / "a"), "--json and --html must be different files"),
        (("--html", "-"), "--html must be a file, got -"),
        (("--json", long), f"--json must be a file in a folder that exists and can be written, got {long}: File name too long"),
        (("--json", "/dev/fd/99"), "--json must be a file in a folder that exists and can be written, got /dev/fd/99"),
    ):
        status, out, err = told(capsys, "nowhere.jsonl", *given)
        assert (status, out) == (2, "")
        assert message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part", [(Path, "replace"), (gt.page, "to_html")])
def test_a_disk_that_fails_after_all_the_work_leaves_no_part_behind(part, capsys, tmp_path, table, monkeypatch):
    (tmp_path / "a.json").write_text("old")
    before = contents(tmp_path)
    monkeypatch.setattr(*part, Mock(side_effect=OSError(28, "No space left on device", "a.html")), raising=False)
    status, out, err = told(capsys, table, "--json", tmp_path / "a.json", "--html", tmp_path / "a.html")
    assert (status, out) == (2, "")
    assert "No space left on device" in err
    assert contents(tmp_path) == before


SHELL = {
    "(echo first; PLAN --json /dev/stdout; echo last) >> LOG": "kept\nfirst\n",
    "(echo first; PLAN --json -; echo last) > LOG": "first\n",
    "(echo first >&3; PLAN --json /dev/fd/3; echo last >&3) 3> LOG": "first\n",
}
"""Lines, and what then stands in a file before the JSON: the standard output, which has it in place of the text, or a number."""


@pytest.mark.parametrize("line", SHELL)
def test_json_goes_where_the_shell_says_and_keeps_what_stands_there(line, table, tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("kept\n")
    done = in_shell(line.replace("LOG", str(log)), table)
    assert (done.returncode, done.stderr) == (0, "")
    text = log.read_text()
    assert (text.startswith(SHELL[line]), text.endswith("\nlast\n")) == (True, True)
    assert json.loads(text.removeprefix(SHELL[line]).removesuffix("last\n"))["format"] == 6


def test_a_pipe_gets_the_text_and_stays_a_pipe(capsys, table, tmp_path):
    pipe, found = tmp_path / "pipe.json", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()), daemon=True)
    reader.start()
    status, _, err = told(capsys, table, "--json", pipe, "--html", os.devnull)
    reader.join(timeout=60)
    assert (status, err) == (0, "")
    assert json.loads(found[0])["format"] == 6
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_device_is_named_and_nothing_else_is_written(table, tmp_path):
    """Neither the table nor another output is to blame."""
    before = contents(tmp_path)
    for line, what in (("PLAN > /dev/full", "standard output"), ("PLAN --html ../a.html --json /dev/full", "/dev/full")):
        done = in_shell(line, table)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"grpo-theory plan: {what}: No space left on device\n"
    assert contents(tmp_path) == before


def test_a_terminal_of_ascii_gets_escapes(tmp_path):
    path = write(tmp_path / "log.jsonl", rows(6, 4))
    done = in_shell("PLAN --reward ü", path, LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    assert (done.returncode, done.stdout, done.stderr.isascii()) == (2, "", True)
    assert re.search(r"\\(xfc|udcc3)", done.stderr)
