"""Logs that are not what they seem: broken, of another kind, nested too deep, with names that a terminal would obey."""

import gzip
import io
import json
import os
import subprocess
import sys
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables import rows, write

import grpo_theory as gt
from grpo_theory.page.advice.screen import table_lines
from grpo_theory.page.command import main
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


SWALLOWED = TABLE + "".join(f"p{k // 4},{k % 2}\n" for k in range(32)).replace("p7,1", '"p7,1', 1)
"""One quote too many, 33 lines down: its cell took the last rows, in silence."""
BAD = [
    ("a.csv", "question,points\nx,1\n", r"^reward must name a column: --reward COLUMN, .*found the columns question, points$"),
    ("a.csv", "prompt,reward,reward\nx,1,0\n", r"a\.csv has more than one column reward: rename all but one$"),
    ("a.csv", "", r"path must be a log with rows, and .*a\.csv' is empty$"),
    ("a.csv", "prompt,reward\nx,1\nx,one\nx,\n", r"must be numbers, and one is 'one' in row 2 of a\.csv; .* --reward"),
    ("a.csv", "prompt,reward\nx,1\nx\n", r"a\.csv is broken or cut off: .*Expected 2 columns, got 1: x"),
    ("a.csv", "prompt,reward\nx,1\n,0\n", r"prompt \(prompt\) must be given in every row.* row 2 of a\.csv: .*--prompt"),

    ("a.csv", SWALLOWED, r"a\.csv, line 33: a quote is stray, or one is missing"),
    ("a.txt", GOOD, r"path must end in \.jsonl, .*\.parquet, .*got '.*a\.txt'"),
    ("a.jsonl", GOOD + '{"prompt": "a", "rew', r"a\.jsonl, line 3: Unterminated string"),
    ("a.jsonl.gz", gzip.compress(GOOD.encode() * 50, mtime=0)[:-12], r"a\.jsonl\.gz is broken or cut off"),
    ("a.jsonl", of(reward=lambda k: None), r"reward \(reward\) is empty in every row: name another by --reward"),

    ("a.jsonl", "\n \n", r"path must be a log with rows, and .*a\.jsonl' is empty$"),
    ("a.csv", "prompt,reward\n", r"the log has no rows$"),
    ("a.jsonl", of(prompt=lambda k: "a\ud800" if k == 3 else "a"), r"prompt \(prompt\) .*'\\ud800' is half .*row 4 of a\.jsonl"),
    ("a.jsonl", of(reward=lambda k: EVIL), r"one is '\\x1b\]0;owned\\x07"),

    ("a.jsonl", of(reward=lambda k: [0.0, 1.0]), r"holds lists: last\(\.\.\.\) or total.*each\(\.\.\.\) makes a response"),
    ("a.jsonl", of(reward=lambda k: {"right": 1}), r"objects with the fields right: name one, as in reward\.score"),
    ("a.jsonl", of(prompt=lambda k: 2.0**60 + 2048 * k), r"more digits than a number of the file keeps apart"),
    ("a.jsonl", '{"problem": "a", "n_correct": 5, "k": 4}\n', r"whole number of successes, of so many .* and one is 5 of 4"),
    ("a.jsonl", GOOD * 300 + f'{{"prompt": "a", "other": {"[" * 100_000}{"]" * 100_000}}}\n', "line 601: nested too deep"),
    ("a.json", "[1, 2]", r"a\.json holds no rows: a list of objects"),
    ("a.parquet", parquet(pa.table({"prompt": ["x"] * 999, "reward": np.arange(999.0)}))[:-100], "a.parquet is broken"),
]  # fmt: skip
"""Files that are refused: name, content, and what the message must hold."""


@pytest.mark.parametrize(("name", "content", "message"), BAD)
def test_each_fault_of_a_file_has_one_message(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message) as refused:
        gt.read_rollouts(tmp_path / name)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("column", ["reward", "step", "length"])
def test_of_a_huge_number_column_row_and_option_are_named(column, tmp_path):
    for value in (float("inf"), -1e61, 10**400, str(10**400)):
        (tmp_path / "a.jsonl").write_text(of(**{column: lambda k, value=value: value if k == 3 else 1}))
        with pytest.raises(ValueError, match=rf"^{column} \({column}\) .* row 4 of a\.jsonl.*--{column}"):
            gt.read_rollouts(tmp_path / "a.jsonl")


def test_quotes_where_they_belong_are_read(tmp_path):
    cells = ['"a,\n""b"""', '5" tall', '""', '"""q"""', "x"]
    (tmp_path / "a.csv").write_text("prompt,note,reward\n" + "".join(f"p{k // 5},{cells[k % 5]},{k % 2}\n" for k in range(10)))
    assert gt.read_rollouts(tmp_path / "a.csv").findings.sizes == {5: 2}


ROWS = of(sketch=lambda k: [1.0, 2.0])


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (of(rm=lambda k: {"accuracy": 1}), {"reward": "accuracy"}, r"--reward must be of columns .* got 'accuracy'; found .*rm"),
        (ROWS, {"keep": ["nosuch"]}, r"keep \(--by\) must be of columns of the log, got 'nosuch'; found prompt, reward, sketch"),

        (ROWS, {"where": "splt == 'b'"}, r"--where must be of columns of the log, got 'splt'; found prompt, reward, sketch"),
        (ROWS, {"where": "split=train"}, r"'split=train' cannot be read: an expression is .* \"split == 'train'\""),
        (ROWS, {"where": "reward > 2"}, r"no row is left: --where reward > 2 is true of none"),
        (ROWS, {"where": "prompt > 2"}, r"where \(prompt > 2\) must be numbers, and one is 'p0' in row 1 of log.jsonl"),
        (ROWS, {"step": "in_path('step')"}, r"needs a pattern with one group in parentheses"),
        (ROWS, {"reward": "open('x')"}, r"there are \+ - \* /, .*each, .*successes"),
        (ROWS, {"reward": "(lambda: 1)()"}, r"cannot be read"),
        (ROWS, {"reward": "last(prompt)"}, r"reward \(last\(prompt\)\) must be lists, and one is 'p0'"),
        (ROWS, {"schema": "verl"}, r"no file has what the schema verl needs \(input, score\); found prompt, reward"),
        (ROWS, {"schema": "verlo"}, r"schema must be one of plain, verl, .* got 'verlo'"),
        (ROWS, {"scorse": "sketch"}, r"read_rollouts has no argument 'scorse'; columns are prompt, group"),
        (ROWS, {"steps": "first"}, r"steps must be 'newest', 'last', 'all'"),
        (ROWS, {"steps": 3}, r"steps must be 'newest' for a log without steps"),
        (of(step=lambda k: 2 + k // 8), {"steps": 7}, "it has none from 7 to 7, and contains 2 to 3"),
        (of(split=lambda k: ["train", "test"][k // 8]), {}, r"8 of 16 rows are of evaluation.*split == 'train'.*--split ''"),
        (of(r=lambda k: [0, 1], p=lambda k: [1]), {"prompt": "each(p)", "reward": "each(r)"}, "prompt and reward differ in"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit(content, options, message, tmp_path):
    (tmp_path / "log.jsonl").write_text(content)
    with pytest.raises((ValueError, TypeError), match=message):
        gt.read_rollouts(tmp_path / "log.jsonl", **options)


def test_sketches_that_differ_in_length_are_refused_and_may_be_left_out(tmp_path):
    for bad in ([1.0], [1.0, "x"], [1.0, None], [1.0, 1e300], [1, 10**400], []):
        (tmp_path / "log.jsonl").write_text(of(sketch=lambda k, bad=bad: bad if k == 3 else [1.0, 2.0]))
        with pytest.raises(ValueError, match=r"scores \(sketch\) must be lists of equal .*row 4 .*--scores '' reads none"):
            _ = gt.read_rollouts(tmp_path / "log.jsonl").rollouts
    assert gt.read_rollouts(tmp_path / "log.jsonl", scores="").rollouts.scores is None


def test_a_log_without_rewards_is_read_where_none_are_wanted(tmp_path):
    (tmp_path / "log.jsonl").write_text(of(reward=lambda k: "left out", logprobs=lambda k: [-1.0] * k))
    log = gt.read_rollouts(tmp_path / "log.jsonl", require_reward=False)
    assert ("reward" in log.rows, [len(one) for one in log.rows["trained"]]) == (False, list(range(16)))
    with pytest.raises(ValueError, match="the log has no rewards"):
        _ = log.rollouts


def test_paths_that_do_not_fit(tmp_path, check_refused):
    for path, message in (
        (tmp_path / "absent", r"path must be a file or a folder of files, and '.*absent' does not exist"),
        (tmp_path, r"path must be a file or a folder of files that end in .*; '.*' has none"),
        (3, "source must be a file's or a folder's name, got 3"),
        (None, "source must be a file's or a folder's name, got None"),
    ):
        both = (partial(read, path) for read in (gt.read_rollouts, gt.checks.read_log))
        check_refused(*((call, message) for call in both), error=(TypeError, ValueError))
    (tmp_path / "round").symlink_to("round")
    assert main(["read", str(tmp_path / "round")]) == 2
    (tmp_path / "1.csv").write_text(TABLE)
    (tmp_path / "2.csv").write_text("prompt,other\nx,1\n")
    assert gt.read_rollouts(tmp_path).findings.left_out == {"rows without a reward": 1}
    (tmp_path / "2.csv").write_text("prompt,reward\nx,one\n")
    check_refused(
        (lambda: gt.read_rollouts(tmp_path), r"one is 'one' in row 1 of 2\.csv"),
        (lambda: gt.read_rollouts(tmp_path, files="x*"), r"--files 'x\*' fits none of the files"),
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(ValueError, match="is a pipe or device: write it to a file first"):
        gt.read_rollouts(tmp_path / "pipe.jsonl")


@pytest.mark.parametrize("options", [(), ("--reward", "none"), ("--reward", EVIL + "!"), (f"--{EVIL}", "1")])
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
    assert ("\\x1b]0;owned\\x07" in out + err) == bool(options)


READ = """
import sys
from grpo_theory.page.command import main
for source in sys.argv[4:]:
    assert main(["read", *sys.argv[1:4], *source.split("|")]) == 0
"""


def test_letters_in_names_are_found_in_the_locale_c(tmp_path):
    (tmp_path / "é").mkdir()
    frame = pd.DataFrame({"é": list("aabb"), "r": [1, 0, 1, 0], "split": ["é"] * 4})
    paths = [tmp_path / "é" / f"é.{kind}" for kind in ("jsonl", "csv", "parquet", "arrow")]
    frame.to_json(paths[0], orient="records", lines=True)
    for put, path in zip((frame.to_csv, frame.to_parquet, frame.to_feather), paths[1:], strict=True):
        put(path)
    sources = [str(one) for one in paths] + [f"{one.parent}|--files|é*{one.suffix}" for one in paths]
    command = [sys.executable, "-c", READ, "--prompt=é", "--reward=r", "--where=split == 'é'", *sources]
    plain = os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(command, env=plain, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_of_many_columns_a_message_names_a_few(one_line, tmp_path):
    """An unknown column of 100,000 gave 789 kB; the columns that were not read are listed in the text, too."""
    path, names = tmp_path / "wide.csv", [f"feature_{k}" for k in range(5_000)]
    lines = (["prompt", "reward", *names], *(["x", reward, *"1" * 5_000] for reward in "01"))
    path.write_text("".join(",".join(line) + "\n" for line in lines))
    error = one_line(main, "plan", path, "--budget", 64, "--reward", "feature_x")
    assert (len(error) < LONGEST_MESSAGE, "4,990 more" in error) == (True, True)


def test_a_table_shows_what_it_is_given_and_obeys_nothing():
    lines = table_lines(((EVIL, "größe"), ("a", EVIL)))
    assert all(line.isprintable() for line in lines)
    assert [sum("owned" in line for line in lines), "größe" in lines[0]] == [2, True]


def test_what_can_be_printed_is_shown_as_it_is_and_what_is_long_is_cut():
    assert printable("größe → 名前") == "größe → 名前"
    assert printable("a\tb\x1b") == "a\\tb\\x1b"
    assert printable("a" * LONGEST + "b" * LONGEST) == f"{'a' * (LONGEST // 2)} ... {'b' * (LONGEST // 2)}"
