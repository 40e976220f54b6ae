"""Logs that are not what they seem: broken, of another kind, nested too deep, with names that a terminal would obey."""

import gzip
import io
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables import rows, write

import grpo_theory as gt
from grpo_theory.logs import log_file
from grpo_theory.logs.nested_rows import DEEPEST
from grpo_theory.page.command import main
from grpo_theory.page.section import Section
from grpo_theory.user_text import LONGEST, LONGEST_MESSAGE, printable

EVIL = "\x1b]0;owned\x07\x1b[2J\u202e\nx"
"""It names the window, clears the screen, turns the text round and begins a line."""
GOOD = '{"prompt": "a", "reward": 1}\n{"prompt": "a", "reward": 0}\n'
TABLE = "prompt,reward\nx,1\nx,0\n"


def obeyed(text):
    """Return the characters in a text that a terminal obeys or that turn it round, but for the ends of lines."""
    return {one for one in text if not one.isprintable()} - {"\n"}


def parquet(table=None):
    """Return the bytes of a Parquet file."""
    held = io.BytesIO()
    pq.write_table(pa.table({"prompt": ["a", "a"], "reward": [0.0, 1.0]}) if table is None else table, held)
    return held.getvalue()


def of(**more):
    """Return 16 rows of 4 prompts, changed."""
    made = ({"prompt": f"p{k // 4}", "reward": k % 2} | {name: make(k) for name, make in more.items()} for k in range(16))
    return "".join(json.dumps({name: one for name, one in row.items() if one != "left out"}) + "\n" for row in made)


def counted(right, of_all):
    """Return rows with numbers of right answers in place of rewards."""
    return "".join(json.dumps({"problem": one, "n_correct": right, "k": of_all}) + "\n" for one in "ab")


def deep(depth, before=""):
    return f'{before}{{"prompt": "a", "reward": 1, "other": {"[" * (depth - 1)}1{"]" * (depth - 1)}}}\n{GOOD}'


BAD = [
    ("a.csv", "question,points\nx,1\n", r"^reward must name .*--reward NAME\); found the columns question, points$"),
    ("a.csv", "prompt;reward\nx;1\n", r"found the column prompt;reward \(the columns of a CSV table must be separated by"),
    ("a.csv", "prompt,reward,reward\nx,1,0\n", r"a\.csv has more than one column reward: rename all but one$"),
    ("a.csv", "", r"a\.csv is empty$"),
    ("a.csv", "prompt,reward\nx,1\nx,one\nx,\n", r"finite numbers; .*a\.csv has others in row 2 \('one'\), row 3 \(empty\)"),
    ("a.csv", "prompt,reward\nx,1\nx\n", r"a\.csv is no whole CSV table: line 3 has 1 columns and not 2: 'x'"),
    ("a.csv", f"prompt,reward,completion\na,1,{'x' * 2000}\na,0,y\n", "is no whole CSV table: a row is longer than 500 bytes"),
    ("a.csv", "prompt,reward\nx,1\n,0\n", r"prompt \(prompt\) must be given for every row; row 2 of .*a\.csv has none"),
    ("a.csv", "prompt,reward,step\nx,1,1\nx,0,\n", r"whole numbers in every row \(step='' reads none\); .*row 2 \(empty\)"),
    ("a.csv", "prompt,reward\nx,1\ny,0\n", r"prompt \(prompt\) must be shared .* each of the 2 groups has one response"),
    ("a.csv", b"prompt,reward\nx\xff,1\nx\xff,0\n", r"a\.csv is no whole CSV table: .*UTF8"),
    ("a.csv", gzip.compress(TABLE.encode(), mtime=0), r"is named \.csv and is compressed by gzip: name it \.csv\.gz$"),
    ("a.csv.gz", TABLE, r"a\.csv\.gz is named \.csv\.gz and is not compressed by gzip: name it \.csv$"),
    ("a.csv", b"PK\x03\x04 and more", "and is a ZIP archive or a spreadsheet, which is not read: write it as "),
    ("a.txt", GOOD, r"path must end in \.csv, .*\.parquet, got '.*a\.txt'"),
    ("a.jsonl", GOOD + '{"prompt": "a", "rew', r"a\.jsonl is no whole file of JSON lines: line 3 is broken, Unterm"),
    ("a.jsonl.gz", gzip.compress(GOOD.encode() * 50, mtime=0)[:-12], r"a\.jsonl\.gz is no whole file of JSON lines"),
    ("a.jsonl", GOOD + '{"prompt": "a"}\n', r"row 3 \(empty\)\. Choose unscored='leave' \(--unscored leave\)"),
    ("a.jsonl", of(reward=lambda k: "right" if k % 3 else "wrong"), r"row 1 \('wrong'\), .*Name another column with --reward"),
    ("a.jsonl", of(prompt=lambda k: "left out"), r"prompt must name .* group_of=N \(--group-of N\) reads them without"),
    ("a.jsonl", of(response=lambda k: "r", reward=lambda k: [0.0, 1.0]), r"has 2 and one response\. Name reward='reward\.sum'"),
    ("a.jsonl", counted(5, 4), r"n_correct must be a number of the responses \(k\); .* row 1"),
    ("a.jsonl", deep(DEEPEST + 1), f"line 1 is nested {DEEPEST + 1} deep, and {DEEPEST} is the most that is read"),
    ("a.jsonl", deep(2000, GOOD * 300), "line 601 is nested 2,000 deep"),
    ("a.parquet", parquet(pa.table({"prompt": pa.array([b"\xff"] * 2), "reward": [1.0, 0.0]})), "and the column holds binary"),
    ("a.parquet", parquet(pa.table({"prompt": ["x"] * 999, "reward": np.arange(999.0)}))[:-100], "is no whole Parquet file"),
]  # fmt: skip
"""Files that are refused: name, content, and what the message must hold."""


@pytest.mark.parametrize("block", [500, 10**6])
def test_each_fault_of_a_file_has_one_message(block, tmp_path, monkeypatch):
    monkeypatch.setattr(log_file, "BLOCK", block)
    for name, content, message in BAD:
        if block > 500 and "longer than 500" in message:
            continue
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        for reader in (gt.read_rollouts, gt.read_reward_counts):
            with pytest.raises(ValueError, match=message) as refused:
                reader(tmp_path / name)
            assert str(refused.value).isprintable()


SKETCH = [1.0, 2.0]
ROWS = of(sketch=lambda k: SKETCH)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (of(sketch=lambda k: SKETCH[: 2 - (k == 3)]), {}, r"scores must be lists of equal length; row 4 of .* has one of 1"),
        (of(reward=lambda k: float("inf") if k == 3 else 0), {"unscored": "leave"}, r"row 4 \(inf\). No option reads these"),
        (
            of(answers=lambda k: ["a"] * 2, reward=lambda k: [0, 1]) * 20 + '{"prompt": "p", "answers": ["a"], "reward": [0, 1]}',
            {"response": "answers"}, "row 321 has 1 of answers beside 2 of reward: lists that belong together",
        ),
        (of(rm=lambda k: {"accuracy": 1}), {"reward": "accuracy"}, r"got 'accuracy'; found .*; did you mean rm\.accuracy\?"),
        (of(solve_rate=lambda k: 0.25), {"reward": "solve_rate@3"}, "solve_rate must be a share of the 3 responses"),
        (ROWS, {"where": {"splt": "b"}}, r"where must name columns of the log, got 'splt'; found the columns prompt, reward"),
        (ROWS, {"reward": "points"}, r"reward must name columns of the log, got 'points'; found"),
        (ROWS, {"scores": "s_"}, "scores must be a column of lists, or what stands before the numbers of columns; got 's_'"),
        (of(step=lambda k: 2 + k % 2), {"steps": 7}, "it has no step 7, and contains steps 2 to 3"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit(content, options, message, tmp_path):
    (tmp_path / "log.jsonl").write_text(content)
    with pytest.raises((ValueError, TypeError), match=message):
        gt.read_rollouts(tmp_path / "log.jsonl", **options)


def test_paths_that_do_not_fit(tmp_path):
    for path, message in (
        (tmp_path / "absent", r"path must be a file or a folder of files, and '.*absent' does not exist"),
        (tmp_path, r"path must be a file or a folder of files that end in .*; '.*' has none"),
        (3, "path must be a file's or a folder's name, got 3"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            gt.read_rollouts(path)
    (tmp_path / "1.csv").write_text(TABLE)
    (tmp_path / "2.csv").write_text("prompt,other\nx,1\n")
    with pytest.raises(ValueError, match=r"2\.csv has no column reward, as the files before it do; found prompt, other"):
        gt.read_rollouts(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(ValueError, match="is a pipe or device: write it to a file first"):
        gt.read_rollouts(tmp_path / "pipe.jsonl")


@pytest.mark.parametrize(
    "options",
    [(), ("--reward", "none"), ("--reward", EVIL + "!"), (f"--{EVIL}", "1")],
)
def test_names_of_columns_are_shown_and_not_obeyed(options, capsys, tmp_path):
    path = write(tmp_path / "log.jsonl", [{**row, EVIL: "a", f"{EVIL}2": 1} for row in rows(6, 4)])
    page = tmp_path / "page.html"
    try:
        status = main(["plan", str(path), "--budget", "64", "--html", str(page), *options])
    except SystemExit as error:
        status = error.code
    out, err = capsys.readouterr()
    assert status == (2 if options else 0)
    assert not obeyed(out + err + (page.read_text() if not options else ""))
    assert "\\x1b]0;owned\\x07" in out + err


def test_values_and_paths_are_shown_and_not_obeyed(capsys, tmp_path):
    found = rows(6, 4)
    found[3]["reward"] = EVIL
    path = write(tmp_path / EVIL.replace("/", "") / "log.jsonl", found)
    assert main(["plan", str(path), "--budget", "64"]) == 2
    err = capsys.readouterr().err
    assert err.count("\\x1b]0;owned\\x07") >= 2
    assert not obeyed(err)


def test_of_many_columns_a_message_names_a_few(capsys, tmp_path):
    """An unknown column of 100,000 gave 789 kB; the columns that were not read are listed in the text, too."""
    path = tmp_path / "wide.csv"
    names = [f"feature_{k}" for k in range(5_000)]
    path.write_text(
        "".join(",".join(line) + "\n" for line in (["prompt", "reward", *names], *(["x", r, *"1" * 5_000] for r in "01")))
    )
    assert main(["plan", str(path), "--budget", "64", "--rewards-only", "--reward", "feature_x"]) == 2
    err = capsys.readouterr().err
    assert len(err) < LONGEST_MESSAGE
    assert "4,990 more" in err


def test_a_section_shows_what_it_is_given_and_obeys_nothing():
    section = Section(EVIL, paragraphs=(EVIL,), table=((EVIL, "größe"), ("a", EVIL)), code=(EVIL,))
    texts = [section.title, *section.paragraphs, *section.code, *(cell for row in section.table for cell in row)]
    assert all(text.isprintable() for text in texts)
    assert [sum("owned" in text for text in texts), section.table[0][1]] == [5, "größe"]


def test_what_can_be_printed_is_shown_as_it_is_and_what_is_long_is_cut():
    assert printable("größe → 名前") == "größe → 名前"
    assert printable("a\tb\x1b") == "a\\tb\\x1b"
    assert printable("a" * LONGEST + "b" * LONGEST) == f"{'a' * (LONGEST // 2)} ... {'b' * (LONGEST // 2)}"
