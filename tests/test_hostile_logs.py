"""Logs that are not what they seem: of another kind than named, nested too deep, with names that a terminal would obey."""

import gzip
import io
import json
import os

import pandas as pd
import pytest
from tables import rows, write

import grpo_theory as gt
from grpo_theory.page.command import main
from grpo_theory.page.section import Section
from grpo_theory.samples.nested_rows import DEEPEST
from grpo_theory.user_text import LONGEST, LONGEST_MESSAGE, listed, printable

EVIL = "\x1b]0;owned\x07\x1b[2J\u202e\nx"
"""It names the window, clears the screen, turns the text round and begins a line."""


def parquet():
    """Return the bytes of a small Parquet file."""
    held = io.BytesIO()
    pd.DataFrame({"prompt": ["a", "a"], "reward": [0.0, 1.0]}).to_parquet(held)
    return held.getvalue()


def obeyed(text):
    """Return the characters in a text that a terminal obeys or that turn it round, but for the ends of lines."""
    return {one for one in text if not one.isprintable()} - {"\n"}


@pytest.mark.parametrize(
    "options",
    [(), ("--reward", "none"), ("--reward", EVIL + "!"), ("--prompt", EVIL + "?"), ("--scores", EVIL), (f"--{EVIL}", "1")],
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
    assert not obeyed(out + err)
    assert "\\x1b]0;owned\\x07" in out + err
    if not options:
        assert not obeyed(page.read_text())
        assert "owned" in page.read_text()
    else:
        assert err.splitlines()[-1].startswith("grpo-theory")


def test_values_and_paths_are_shown_and_not_obeyed(capsys, tmp_path):
    folder = tmp_path / EVIL.replace("/", "")
    folder.mkdir()
    found = rows(6, 4)
    found[3]["reward"] = EVIL
    path = write(folder / "log.jsonl", found)
    assert main(["plan", str(path), "--budget", "64"]) == 2
    err = capsys.readouterr().err
    assert err.count("\\x1b]0;owned\\x07") >= 2
    assert not obeyed(err)


def test_what_can_be_printed_is_shown_as_it_is():
    assert printable("größe → 名前") == "größe → 名前"
    assert printable("a\tb\x1b") == "a\\tb\\x1b"
    assert printable("x" * LONGEST) == "x" * LONGEST
    shown = printable("a" * LONGEST + "b" * LONGEST)
    assert shown == f"{'a' * (LONGEST // 2)} ... {'b' * (LONGEST // 2)}"
    assert listed(["b", "a"], ["a"]) == "b, a"
    many = [f"column_{k}" for k in range(1000)] + ["Rewards"]
    assert listed(many, ["reward"]).startswith("Rewards, column_0, ")
    assert listed(many, ["reward"]).endswith(" and 989 more")


def test_no_part_of_a_section_is_obeyed():
    section = Section(EVIL, paragraphs=(EVIL,), table=((EVIL, "größe"), ("a", EVIL)), code=(EVIL,))
    texts = [section.title, *section.paragraphs, *section.code, *(cell for row in section.table for cell in row)]
    assert all(text.isprintable() for text in texts)
    assert sum("owned" in text for text in texts) == 5
    assert section.table[0][1] == "größe"


def test_of_many_columns_a_message_names_a_few(capsys, tmp_path):
    """An unknown column of 100,000 gave 789 kB; the columns that were not read are listed in the text, too."""
    names = [f"feature_{k}" for k in range(100_000)]
    path = tmp_path / "wide.csv"
    path.write_text(",".join(["prompt", "reward", *names]) + "\n")
    with path.open("a") as file:
        for reward in (0, 1):
            file.write(f"x,{reward}" + ",1" * len(names) + "\n")
    assert main(["plan", str(path), "--budget", "64", "--rewards-only", "--reward", "feature_x"]) == 2
    err = capsys.readouterr().err
    assert len(err) < LONGEST_MESSAGE
    assert "feature_" in err
    assert "99,990 more" in err
    assert main(["plan", str(path), "--budget", "64", "--rewards-only", "--min-prompts", "1"]) in (0, 2)
    out, err = capsys.readouterr()
    assert len(out + err) < 20_000


GOOD = b'{"prompt": "a", "reward": 1}\n{"prompt": "a", "reward": 0}\n'
TABLE = b"prompt,reward\nx,1\nx,0\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", gzip.compress(TABLE, mtime=0), r"a\.csv is named \.csv and is compressed by gzip: name it \.csv\.gz$"),
        ("a.jsonl", gzip.compress(GOOD, mtime=0), r"a\.jsonl is named \.jsonl and is compressed by gzip: name it \.jsonl\.gz$"),
        ("a.csv.gz", TABLE, r"a\.csv\.gz is named \.csv\.gz and is not compressed by gzip: name it \.csv$"),
        ("a.csv", parquet(), r"a\.csv is named \.csv and is a Parquet file: name it \.parquet$"),
        ("a.jsonl", parquet(), r"a\.jsonl is named \.jsonl and is a Parquet file: name it \.parquet$"),
        ("a.csv", b"PK\x03\x04 and more", "and is a ZIP archive or a spreadsheet, which is not read: write it as "),
        ("a.csv", TABLE.decode().encode("utf-16"), "and is text in UTF-16, which is not read: write it as "),
        ("a.csv", b"prompt,reward\nx\xff,1\nx\xff,0\n", r"a\.csv is no whole CSV table: .*UTF8"),
        ("a.csv", b"x\n", r"^reward must name the column of the rewards \(--reward NAME\); found the column x$"),
        ("a.parquet", TABLE, r"a\.parquet is no whole Parquet file: "),
    ],
    ids=range(10),
)
def test_a_file_of_another_kind_than_its_name_says_is_told_so(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    for read in (gt.read_rollouts, gt.read_reward_counts):
        with pytest.raises(ValueError, match=message) as error:
            read(path)
        assert str(error.value).isprintable()


@pytest.mark.parametrize("place", ["first", "later"])
@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
def test_json_that_is_nested_too_deep_is_refused(place, opened, closed, tmp_path):
    def line(depth):
        inner = opened * (depth - 1) + "1" + closed * (depth - 1)
        return f'{{"prompt": "a", "reward": 1, "other": {inner}}}\n'.encode()

    path = tmp_path / "deep.jsonl"
    for depth in (DEEPEST + 1, 2_000, 200_000):
        path.write_bytes(line(depth) + GOOD if place == "first" else GOOD * 300 + line(depth))
        which = 1 if place == "first" else 601
        with pytest.raises(ValueError, match=f"line {which} is nested {depth:,} deep, and {DEEPEST} is the most that is read"):
            gt.read_reward_counts(path)
    path.write_bytes(line(DEEPEST) + GOOD)
    assert gt.read_reward_counts(path)[1].rows == 3


def test_brackets_within_strings_do_not_nest(tmp_path):
    found = [{"prompt": "[{" * 300 + '"\\', "reward": k} for k in range(2)]
    assert gt.read_reward_counts(write(tmp_path / "a.jsonl", found))[1].rows == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_refused_and_not_waited_for(capsys, tmp_path):
    path = tmp_path / "pipe.jsonl"
    os.mkfifo(path)
    assert main(["plan", str(path), "--budget", "64"]) == 2
    assert "is a pipe or device: write it to a file first" in capsys.readouterr().err
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "pipe.jsonl")
    with pytest.raises(ValueError, match="has none"):
        gt.read_rollouts(tmp_path / "folder")


@pytest.mark.parametrize("missing", [None, ""])
@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_rows_without_a_response_are_not_taken_for_repeats(missing, kind, tmp_path):
    """Groups of equal rewards were "repeated", rows and steps alike, and steps were left out."""
    frame = pd.DataFrame(
        [
            {"prompt": f"p{b}", "response": missing, "reward": float(g % 2), "step": step}
            for step in (1, 2)
            for b in range(3)
            for g in range(4)
        ]
    )
    path = tmp_path / f"log.{kind}"
    if kind == "jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in frame.to_dict("records")))
    else:
        frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    findings = gt.read_rollouts(path, steps="all").findings
    assert findings.duplicates == 0
    assert findings.repeated_steps == ()
    assert findings.kept == 24
    # One row without a response makes its step one that is not known to be repeated; with all of them it is.
    frame["response"] = [f"answer {k % 12}" for k in range(24)]
    frame.to_parquet(tmp_path / "known.parquet")
    assert gt.read_rollouts(tmp_path / "known.parquet", steps="all").findings.repeated_steps == (2,)
    frame.loc[[0, 12], "response"] = missing
    frame.to_parquet(tmp_path / "known.parquet")
    assert gt.read_rollouts(tmp_path / "known.parquet", steps="all").findings.repeated_steps == ()
