"""Where the command writes: never over what it reads, into pipes and devices without replacing them, and whole or not at all."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tables import answer, rows, write

from grpo_theory.page.command import main

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes and devices are no files there")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A log with sketches."""
    return write(tmp_path_factory.mktemp("plan") / "rollouts.jsonl", rows(6, 4))


def told(capsys, *arguments):
    """Run the command; return its status and what it printed."""
    status = main(["plan", *map(str, arguments)])
    return status, *capsys.readouterr()


def in_shell(line, table, **environment):
    """Run the command in a shell, with its streams as the line puts them; TABLE and PLAN in it stand for themselves."""
    plan = f"{sys.executable} -W error -c 'import sys; from grpo_theory.page.command import main; sys.exit(main())' plan"
    text = line.replace("PLAN", plan).replace("TABLE", str(table))
    known = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(["bash", "-c", text], cwd=table.parent, env=known, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("output", ["--json", "--html"])
@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_a_file_that_a_folder_links_to_is_not_written_over(output, link, capsys, tmp_path):
    path = write(tmp_path / "t.jsonl", rows(6, 4))
    (tmp_path / "lf").mkdir()
    getattr(tmp_path / "lf" / "a.jsonl", link)(path)
    before = path.read_bytes()
    status, out, err = told(capsys, tmp_path / "lf", "--budget", 64, output, path)
    assert (status, out) == (2, "")
    assert f"{output} must not be {tmp_path / 'lf' / 'a.jsonl'}, which is read as part of the table, got {path}" in err
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["lf", "t.jsonl"]


def test_a_table_under_another_name_is_not_appended_to(tmp_path):
    path = write(tmp_path / "t.jsonl", rows(6, 4))
    before = path.read_bytes()
    for line in ("PLAN TABLE --budget 64 >> TABLE", "PLAN TABLE --budget 64 --json /dev/fd/3 3>> TABLE"):
        done = in_shell(line, path)
        assert done.returncode == 2
        assert "must not be the table itself" in done.stderr
        assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "-"])
@pytest.mark.parametrize("redirection", [">", ">>"])
def test_json_to_the_standard_output_is_printed_in_place_of_the_text_and_keeps_what_stands_there(
    name, redirection, table, tmp_path
):
    log = tmp_path / "log.txt"
    log.write_text("kept\n")
    done = in_shell(f"(echo first; PLAN TABLE --budget 64 --json {name}; echo last) {redirection} {log}", table)
    assert (done.returncode, done.stderr) == (0, "")
    before = "kept\n" if redirection == ">>" else ""
    text = log.read_text()
    assert text.startswith(f"{before}first\n")
    assert text.endswith("\nlast\n")
    assert json.loads(text.removeprefix(f"{before}first\n").removesuffix("last\n"))["format"] == 3
    assert [one.name for one in tmp_path.iterdir()] == ["log.txt"]


def test_other_open_files_are_added_to(table, tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("kept\n")
    done = in_shell(f"PLAN TABLE --budget 64 --json /dev/fd/3 --html /dev/stderr 3>> {log}", table)
    assert done.returncode == 0
    assert answer(done.stdout).startswith("RECOMMENDATION")
    assert done.stderr.startswith("<!doctype html>")
    assert log.read_text().startswith("kept\n{")
    done = in_shell(f"(echo first >&3; PLAN TABLE --budget 64 --json /dev/fd/3; echo last >&3) 3> {log}", table)
    assert done.returncode == 0
    assert log.read_text().startswith("first\n{")
    assert log.read_text().endswith("}\nlast\n")


def test_a_pipe_gets_the_text_and_stays_a_pipe(capsys, table, tmp_path):
    pipe, found = tmp_path / "pipe.json", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()), daemon=True)
    reader.start()
    status, _, err = told(capsys, table, "--budget", 64, "--json", pipe, "--html", os.devnull)
    reader.join(timeout=60)
    assert (status, err) == (0, "")
    assert json.loads(found[0])["format"] == 3
    assert pipe.is_fifo()
    assert [one.name for one in tmp_path.iterdir()] == ["pipe.json"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_device_is_named_and_nothing_else_is_written(table, tmp_path):
    """Neither the table nor another output is to blame."""
    for line, what in (
        ("PLAN TABLE --budget 64 > /dev/full", "standard output"),
        ("PLAN TABLE --budget 64 --json - > /dev/full", "standard output"),
        (f"PLAN TABLE --budget 64 --html {tmp_path / 'a.html'} --json /dev/full", "/dev/full"),
    ):
        done = in_shell(line, table)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"grpo-theory plan: {what}: No space left on device\n"
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_open_is_refused(table):
    done = in_shell("PLAN TABLE --budget 64 --json /dev/fd/9", table)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--json must be a file in a folder that exists and can be written, got /dev/fd/9" in done.stderr


@pytest.mark.parametrize(
    "environment", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}]
)
def test_a_terminal_of_ascii_gets_escapes(environment, tmp_path):
    found = [{**row, "größe": 1} for row in rows(6, 4)]
    path = write(tmp_path / "é.jsonl", found)
    done = in_shell("PLAN é.jsonl --budget 64; PLAN é.jsonl --budget 64 --reward ü", path, **environment)
    assert "gr\\xf6\\xdfe" in done.stdout
    assert "RECOMMENDATION" in done.stdout
    assert done.stderr.startswith("grpo-theory plan: reward must name columns of the log, got '")
    assert done.stderr.count("\n") == 1
