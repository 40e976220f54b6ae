"""Readers of rollouts: every format says the same as the rows it was made of, and each fault of a file has one message."""

import gzip
import json
import re
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import grpo_theory as gt
from grpo_theory.samples import log_file

FORMATS = ("csv", "csv.gz", "jsonl", "jsonl.gz", "ndjson", "json", "parquet")


def rows(seed=3, count=400, prompts=30):
    """Rows with ragged groups, texts with commas, quotes and new lines, and prompts that come back."""
    rng = np.random.default_rng(seed)
    index = np.concatenate([np.arange(prompts), rng.integers(0, prompts, count - prompts)])
    return pd.DataFrame(
        {
            "prompt_id": [f'prompt "{k}",\nline 2' if k % 3 else f"p{k}" for k in index],
            "reward": rng.choice([0.0, 0.25, 1.0], count),
            "length": rng.integers(1, 500, count),
            "response_id": np.arange(count),
            "extra": ["é, x"] * count,
        }
    )


def write(frame, path):
    """Write a table in the format of the path's ending."""
    name, compression = path.name.lower(), "gzip" if path.suffix.lower() == ".gz" else None
    if name.endswith("parquet"):
        frame.to_parquet(path, row_group_size=37)
    elif "csv" in name:
        frame.to_csv(path, index=False, compression=compression)
    else:
        frame.to_json(path, orient="records", lines=True, compression=compression)
    return path


def text(path, content):
    """Write a file of a name and content, and return its path."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.fixture(params=["small blocks", "large blocks"])
def blocks(request, monkeypatch):
    """Read text in blocks of a few rows, too."""
    if request.param == "small blocks":
        monkeypatch.setattr(log_file, "BLOCK", 500)


def same_counts(one, other):
    return np.array_equal(one.values, other.values) and np.array_equal(one.counts.toarray(), other.counts.toarray())


@pytest.mark.parametrize(("batch_rows", "block"), [(3, 500), (7, 10**6), (65536, 500), (65536, 10**6)])
@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_rows_back(tmp_path, monkeypatch, kind, batch_rows, block):
    monkeypatch.setattr(log_file, "BLOCK", block)
    frame = rows()
    path = write(frame, tmp_path / f"log.{kind}")
    log = gt.read_rollouts(path, batch_rows=batch_rows)
    expected = gt.RaggedRollouts(frame.prompt_id, frame.reward)
    assert log.rollouts.prompts.tolist() == expected.prompts.tolist()
    assert np.array_equal(log.rollouts.index, expected.index)
    assert np.array_equal(log.rollouts.rewards, frame.reward)
    assert np.array_equal(log.lengths, frame.length)
    assert log.steps is None
    assert log.rollouts.scores is None
    counts, _ = gt.read_reward_counts(path, batch_rows=batch_rows)
    assert same_counts(counts, expected.counts)


def test_findings_are_those_of_the_rows(tmp_path):
    frame = rows()
    found = gt.read_rollouts(write(frame, tmp_path / "log.jsonl")).findings
    groups = frame.groupby("prompt_id").reward
    assert (found.files, found.rows, found.kept, found.prompts, found.groups) == (1, 400, 400, 30, 30)
    assert found.sizes == dict(sorted(Counter(groups.size()).items()))
    assert found.ragged
    assert found.rewards == dict(sorted(Counter(frame.reward).items()))
    assert found.uniform == (groups.nunique() == 1).sum()
    assert found.columns == {"prompt": "prompt_id", "reward": "reward", "length": "length", "response": "response_id"}
    assert found.ignored == ("extra",)
    assert (found.steps, found.repeated_steps, found.duplicates) == ((), (), 0)
    said = str(found)
    for part in ("400 rows in 1 file", "30 prompts, 30 groups", "prompt = prompt_id", "not read: extra", "0.25 ("):
        assert part in said


def test_repeated_rows_are_counted(tmp_path):
    frame = rows()
    again = pd.concat([frame, frame.iloc[[5, 5, 9]]])
    found = gt.read_rollouts(write(again, tmp_path / "log.csv")).findings
    assert found.duplicates == 3
    assert any("3 rows of 403 repeat" in one for one in found.warnings)
    assert gt.read_rollouts(tmp_path / "log.csv", response="").findings.duplicates == 0


def steps_of(frame, *steps):
    """Return the rows of a frame, those of each step drawn anew."""
    rng = np.random.default_rng(8)
    parts = []
    for step in steps:
        part = frame.assign(step=step, reward=rng.choice([0.0, 1.0], len(frame)))
        parts.append(part.assign(response_id=rng.integers(0, 10**9, len(frame))))
    return pd.concat(parts)


def test_groups_of_different_steps_stay_apart(tmp_path):
    frame = steps_of(rows(count=60, prompts=10), 3, 5, 6)
    path = write(frame, tmp_path / "log.parquet")
    log = gt.read_rollouts(path, batch_rows=50, steps="all")
    assert log.findings.steps == (3, 5, 6)
    assert (log.findings.prompts, log.findings.groups) == (10, 30)
    assert log.rollouts.prompts[0] == (3, frame.prompt_id.iloc[0])
    assert np.array_equal(log.steps, frame.step)
    expected = gt.RaggedRollouts(list(zip(frame.step, frame.prompt_id, strict=True)), frame.reward)
    assert same_counts(log.rollouts.counts, expected.counts)
    for steps, kept in (("last", [6]), (5, [5]), ((6, 9), [6])):
        some, part = gt.read_rollouts(path, steps=steps), frame[frame.step.isin(kept)]
        assert some.findings.steps == tuple(kept)
        assert some.findings.other_steps == 3 - len(kept)
        assert np.array_equal(some.rollouts.rewards, part.reward)
        counts, found = gt.read_reward_counts(path, steps=steps, batch_rows=50)
        assert same_counts(counts, some.rollouts.counts)
        assert found.kept == len(part)
    assert gt.read_rollouts(path, steps="last").rollouts.prompts[0] == frame.prompt_id.iloc[0]
    # Without its steps the log is one set of larger groups.
    assert gt.read_rollouts(path, step="").findings.groups == 10


def test_of_each_prompt_the_newest_group_is_used(tmp_path):
    """Steps out of order in the file, prompts that do not come at every step, and a newest step that repeats the one before."""
    rng = np.random.default_rng(21)
    frame = steps_of(rows(count=120, prompts=20), 7, 2, 4)
    frame = frame[rng.random(len(frame)) < 0.4]
    again = frame[frame.step == 7].assign(step=8)
    path = write(pd.concat([frame, again]), tmp_path / "log.parquet")
    for steps, low, high in (("newest", 2, 8), ((2, 4), 2, 4), ((3, 9), 3, 9)):
        asked = frame[(frame.step >= low) & (frame.step <= high)]
        expected = asked[asked.step == asked.groupby("prompt_id").step.transform("max")]
        log = gt.read_rollouts(path, steps=steps, batch_rows=13)
        assert np.array_equal(log.rollouts.rewards, expected.reward)
        assert log.rollouts.prompts.tolist() == list(dict.fromkeys(expected.prompt_id))
        assert np.array_equal(log.steps, expected.step)
        assert log.findings.steps == tuple(sorted(set(expected.step)))
        assert log.findings.groups == log.findings.prompts == expected.prompt_id.nunique()
        assert log.findings.older_groups == asked.groupby(["step", "prompt_id"]).ngroups - expected.prompt_id.nunique() > 0
        assert f"{log.findings.older_groups} groups left out: their prompts have newer ones" in str(log.findings)
        assert "Different prompts may be of different policies" in str(log.findings)
        counts, found = gt.read_reward_counts(path, steps=steps, batch_rows=13)
        assert same_counts(counts, gt.RaggedRollouts(expected.prompt_id, expected.reward).counts)
        assert (found.groups, found.older_groups, found.steps) == (
            log.findings.groups,
            log.findings.older_groups,
            log.findings.steps,
        )
    every = gt.read_rollouts(path, steps="all").findings
    assert every.older_groups == 0
    assert f"The {every.groups} groups are of {every.prompts} prompts, and intervals take them for independent" in str(every)


def test_a_step_that_repeats_the_one_before_is_left_out(tmp_path):
    one = steps_of(rows(count=60, prompts=10), 1)
    twice = one.sample(frac=1.0, random_state=2).assign(step=2)  # in another order, as after a shuffle
    other = twice.assign(step=3, reward=1.0 - twice.reward)
    path = write(pd.concat([one, twice, other]), tmp_path / "log.jsonl")
    log = gt.read_rollouts(path, batch_rows=7, steps="all")
    assert log.findings.repeated_steps == (2,)
    assert log.findings.steps == (1, 3)
    assert (log.findings.rows, log.findings.kept) == (180, 120)
    assert any("1 step (2) repeated" in one for one in log.findings.warnings)
    # One reward less, and the step is another.
    third = twice.copy()
    third.iloc[4, third.columns.get_loc("reward")] += 1.0
    assert gt.read_rollouts(write(pd.concat([one, third]), tmp_path / "b.jsonl")).findings.repeated_steps == ()
    # Without responses, equal rewards tell nothing.
    assert gt.read_rollouts(path, response="").findings.repeated_steps == ()


def test_a_folder_is_read_in_the_order_of_its_numbers(tmp_path):
    frame = steps_of(rows(count=40, prompts=8), 2, 10, 1)
    for step, part in frame.groupby("step"):
        write(part, tmp_path / f"{step}.jsonl")
    (tmp_path / "notes.txt").write_text("not read")
    log = gt.read_rollouts(tmp_path, steps="all")
    assert log.findings.files == 3
    assert [step for step, _ in log.rollouts.prompts[::8]] == [1, 2, 10]


def test_conversations_are_known_by_all_their_messages(tmp_path):
    def messages(k):
        return [{"role": "system", "content": f"be {k % 2}"}, {"role": "user", "content": f"q{k // 2}"}]

    frame = pd.DataFrame({"prompt": [messages(k % 6) for k in range(24)], "score": np.arange(24) % 2})
    for name in ("a.parquet", "a.jsonl"):
        log = gt.read_rollouts(write(frame, tmp_path / name))
        assert log.findings.sizes == {4: 6}
        assert np.array_equal(log.rollouts.index, np.arange(24) % 6)


def test_a_row_longer_than_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(log_file, "BLOCK", 500)
    frame = pd.DataFrame({"prompt": ["a", "a"], "reward": [1, 0], "completion": ["x" * 2000, "y"]})
    with pytest.raises(ValueError, match=r"a\.csv is no whole CSV table: a row is longer than 500 bytes"):
        gt.read_rollouts(write(frame, tmp_path / "a.csv"))
    assert gt.read_rollouts(write(frame, tmp_path / "a.jsonl")).findings.rows == 2


def test_sums_of_rewards_that_overflow(tmp_path):
    path = text(tmp_path / "a.csv", "prompt,one,two\na,0,0\na,1e308,1e308\n")
    for reward in (["one", "two"], {"one": 10.0, "two": -10.0}):
        with pytest.raises(ValueError, match=r"reward must be finite numbers; .*row 2 \('1e308'\)"):
            gt.read_rollouts(path, reward=reward)
    with pytest.raises(ValueError, match=r"rewards must lie in \[-1e\+60, 1e\+60\], got 1e\+308 at index \(1,\)"):
        gt.read_rollouts(path, reward="one")


def test_rewards_are_added_up_as_in_trl(tmp_path):
    frame = pd.DataFrame(
        {
            "step": 1,
            "prompt": ["a", "a", "b", "b"],
            "completion": list("wxyz"),
            "right": [1.0, 0.0, None, 1.0],
            "format": [0.5, 0.5, 1.0, None],
            "note": "text",
            "advantage": 0.0,
        }
    )
    path = write(frame, tmp_path / "completions_00001.parquet")
    with pytest.raises(ValueError, match=r"reward must name a column: right, format may be reward functions of TRL"):
        gt.read_rollouts(path)
    assert gt.read_rollouts(path, reward=["right", "format"]).rollouts.rewards.tolist() == [1.5, 0.5, 1.0, 1.0]
    weighed = gt.read_rollouts(path, reward={"right": 2.0, "format": -1.0})
    assert weighed.rollouts.rewards.tolist() == [1.5, -0.5, -1.0, 2.0]
    assert weighed.findings.columns["reward"] == "2 * right - format"
    with pytest.raises(ValueError, match=r"reward must be finite numbers; .* row 3 \(empty\)"):
        gt.read_rollouts(path, reward="right")
    only = write(frame.drop(columns="format").fillna(0.0), tmp_path / "only.parquet")
    assert gt.read_rollouts(only).findings.columns["reward"] == "right"


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
def test_scores_are_read(tmp_path, kind):
    rng = np.random.default_rng(4)
    scores, frame = rng.normal(size=(400, 3)), rows()
    numbered = frame.assign(**{f"s_{k}": scores[:, k] for k in (2, 0, 1)})
    log = gt.read_rollouts(write(numbered, tmp_path / f"a.{kind}"), scores="s_", batch_rows=33)
    np.testing.assert_allclose(log.rollouts.scores, scores, rtol=1e-9, atol=1e-9)
    assert log.findings.columns["scores"] == "s_0 ... s_2"
    if kind != "csv":
        listed = gt.read_rollouts(write(frame.assign(sketch=list(scores)), tmp_path / f"b.{kind}"), batch_rows=33)
        np.testing.assert_allclose(listed.rollouts.scores, scores, rtol=1e-9, atol=1e-9)
        assert listed.findings.columns["scores"] == "sketch"


def test_other_ways_to_write_a_reward(tmp_path):
    for name, content in (
        ("bools.csv", "prompt,reward\na,True\na,false\nb,1\nb,0\n"),
        ("bools.jsonl", '{"prompt": "a", "reward": true}\n{"prompt": "a", "reward": 0}\n'
                        '{"prompt": "b", "reward": 1.0}\n{"prompt": "b", "reward": false}\n'),
        ("names.csv", "prompt,reward\nNA,1\nNA,0\nnull,1\nnull,0\n"),
        ("text.jsonl", "".join(f'{{"prompt": "{p}", "reward": "{r}"}}\n\n' for p, r in ("a1", "a0", "b1", "b0"))),
    ):  # fmt: skip
        assert gt.read_rollouts(text(tmp_path / name, content)).rollouts.rewards.tolist() == [1.0, 0.0, 1.0, 0.0], name
    encoded = pa.table(
        {"prompt": pa.array(["a", "a", "b", "b"]).dictionary_encode(), "reward": pa.array([1, 0, 1, 0], pa.uint8())}
    )
    pq.write_table(encoded, tmp_path / "dictionary.parquet")
    assert gt.read_rollouts(tmp_path / "dictionary.parquet").rollouts.prompts.tolist() == ["a", "b"]


def test_one_prompt_is_one_however_its_id_is_written(tmp_path):
    text(tmp_path / "1.csv", "Prompt_ID, Reward\n7,1\n7,0\n8,0\n")
    text(
        tmp_path / "2.jsonl", '{"prompt_id": 7, "reward": 1}\n{"prompt_id": "7", "reward": 1}\n{"prompt_id": 8.0, "reward": 0}\n'
    )
    pq.write_table(pa.table({"prompt_id": [7.0, 8.0], "reward": [0.5, 0.5]}), tmp_path / "3.parquet")
    text(tmp_path / ".4.csv", "hidden")
    with pytest.raises(ValueError, match=r"2\.jsonl has no column Prompt_ID,  Reward, as the files before it do"):
        gt.read_rollouts(tmp_path)
    text(tmp_path / "1.csv", "prompt_id,reward\n7,1\n7,0\n8,0\n")
    log = gt.read_rollouts(tmp_path)
    assert log.rollouts.prompts.tolist() == ["7", "8"]
    assert log.rollouts.index.tolist() == [0, 0, 1, 0, 0, 1, 0, 1]


def test_names_may_have_capitals_and_spaces(tmp_path):
    found = gt.read_rollouts(text(tmp_path / "a.csv", "Prompt_ID, Reward\n7, 1\n7, 0\n")).findings
    assert found.columns == {"prompt": "Prompt_ID", "reward": " Reward"}
    for ending in ("CSV", "Csv.GZ", "JSONL", "Jsonl.GZ", "PARQUET"):
        assert gt.read_rollouts(write(rows(), tmp_path / f"log.{ending}")).findings.rows == 400, ending
    frame = pd.DataFrame({"prompt": ["a", "a"], "reward": [1, 0]})
    frame.to_csv(tmp_path / "index.csv")
    assert "not read: ''" in str(gt.read_rollouts(tmp_path / "index.csv").findings)


def test_ids_too_large_for_floats_stay_apart(tmp_path):
    frame = pd.DataFrame({"prompt_id": 2**53 + np.arange(8) // 2, "reward": np.arange(8) % 2})
    for kind in FORMATS:
        log = gt.read_rollouts(write(frame, tmp_path / f"log.{kind}"))
        assert [int(one) for one in log.rollouts.prompts] == [2**53 + k for k in range(4)]
    lines = "".join(f'{{"prompt_id": {2**70 + k // 2}, "reward": {k % 2}}}\n' for k in range(8))
    assert gt.read_rollouts(text(tmp_path / "larger.jsonl", lines)).findings.sizes == {2: 4}


@pytest.mark.usefixtures("blocks")
def test_messages_with_fields_that_come_late(tmp_path):
    """A field that only later messages have tells prompts apart; where it is null or absent, it changes nothing."""

    def prompt(k):
        if k < 300:
            return [{"role": "user", "content": "q"}]
        return [{"content": "q", "name": None if k < 600 else "n", "role": "user"}]

    lines = [{"prompt": prompt(k), "reward": k % 2, "other": k if k < 500 else "text"} for k in range(900)]
    log = gt.read_rollouts(text(tmp_path / "a.jsonl", "".join(json.dumps(line) + "\n" for line in lines)))
    assert log.rollouts.sizes.tolist() == [600, 300]


def test_prompts_of_tokens_and_of_nothing_readable(tmp_path):
    nested = pa.array([[[1, 2], [3]], [[1], [2, 3]], [[1, 2], [3]], [[1], [2, 3]]])
    pq.write_table(pa.table({"prompt": nested, "reward": [1.0, 0.0, 0.0, 1.0]}), tmp_path / "a.parquet")
    assert gt.read_rollouts(tmp_path / "a.parquet").rollouts.index.tolist() == [0, 1, 0, 1]
    pq.write_table(pa.table({"prompt": pa.array([b"\xff", b"\xff"]), "reward": [1.0, 0.0]}), tmp_path / "b.parquet")
    with pytest.raises(
        ValueError, match=r"prompt \(prompt\) must be numbers, texts or conversations, and the column holds binary"
    ):
        gt.read_rollouts(tmp_path / "b.parquet")


@pytest.mark.usefixtures("blocks")
def test_irrelevant_columns_may_change_their_type(tmp_path):
    lines = [{"input": f"p{k // 4}", "score": k % 2, "gts": "4" if k < 20 else [4, "four"], "pred": None} for k in range(40)]
    path = text(tmp_path / "7.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    for batch_rows in (1, 1000):
        assert gt.read_rollouts(path, batch_rows=batch_rows).findings.sizes == {4: 10}


def test_what_all_equal_rewards_tell(tmp_path):
    log = gt.read_rollouts(write(rows().assign(reward=1.0), tmp_path / "log.csv"))
    assert log.findings.rewards == {1.0: 400}
    assert log.findings.warnings[0].startswith("All rewards are equal (1)")


GOOD = '{"prompt": "a", "reward": 1}\n{"prompt": "a", "reward": 0}\n'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "question,points\nx,1\n", r"^reward must name .*--reward NAME\); found the columns question, points$"),
        ("a.csv", "reward,points\n1,1\n", r"^prompt must name the column of the prompts.*; found the columns reward, points\. W"),
        ("a.csv", "prompt;reward\nx;1\n", r"found the column prompt;reward \(the columns of a CSV table must be separated by"),
        ("a.csv", "prompt,reward,reward\nx,1,0\n", r"a\.csv has more than one column reward: rename all but one$"),
        ("a.csv", "", r"a\.csv is empty$"),
        ("a.csv", "prompt,reward\n", r"a\.csv has columns, and no rows$"),
        ("a.csv", "prompt,reward\nx,1\nx,one\nx,\n", r"finite numbers; .*a\.csv has others in row 2 \('one'\), row 3 \(empty\)"),
        ("a.csv", "prompt,reward\nx,1\nx,1_0\nx,10%\n", r"row 2 \('1_0'\), row 3 \('10%'\)"),
        ("a.csv", "prompt,reward\nx,1\nx,nan\nx,inf\n", r"row 2 \('nan'\), row 3 \('inf'\)"),
        ("a.csv", "prompt,reward\nx,1\nx\n", r"a\.csv is no whole CSV table: line 3 has 1 columns and not 2: 'x'"),
        ("a.csv", "prompt,reward\nx,1\n,0\n", r"prompt \(prompt\) must be given for every row; row 2 of .*a\.csv has none"),
        ("a.csv", "prompt,reward,step\nx,1,1\nx,0,\n", r"whole numbers in every row \(step='' reads none\); .*row 2 \(empty\)"),
        ("a.csv", "prompt,reward,step\nx,1,1\nx,0,1.5\n", r"numbers in every row \(step='' reads none\); .*row 2 \('1.5'\)"),
        ("a.csv", "prompt,reward,length\nx,1,-4\nx,0,3\n", r"numbers of at least 0 \(length='' reads none\); .*row 1 \('-4'\)"),
        ("a.csv", "prompt,reward\nx,1\ny,0\n", r"prompt \(prompt\) must be shared .* each of the 2 groups has one response"),
        ("a.csv", "prompt,reward,step\nx,1,1\nx,0,2\n", "the only group has one response at its step"),
        ("a.txt", GOOD, r"path must end in \.csv, .*\.parquet, got '.*a\.txt'"),
        ("a.jsonl", "", r"a\.jsonl is empty"),
        ("a.jsonl", "\n{}\n \n", r"a\.jsonl has no columns"),
        ("a.jsonl", GOOD + '{"prompt": "a", "rew', r"a\.jsonl is no whole file of JSON lines: line 3 is broken, Unterm"),
        ("a.jsonl", GOOD * 300 + '{"prompt": "a", "rew', "line 601 is broken"),
        ("a.jsonl", GOOD + "[1, 2]\n", "line 3 is not an object"),
        ("a.json", json.dumps([{"prompt": "a"}], indent=1), r"^reward must name .*--reward NAME\); found the column p"),
        ("a.jsonl", GOOD + '{"prompt": "a", "reward": NaN}\n', r"row 3 \(nan\)"),
        ("a.jsonl", GOOD + '{"prompt": "a", "reward": "good"}\n', r"reward must be finite numbers; .*row 3 \('good'\)"),
        ("a.jsonl", GOOD + '{"prompt": "a"}\n', r"row 3 \(empty\)"),
        ("a.jsonl", GOOD.replace("1}", "[1]}"), r"reward must be finite numbers; .*row 1 \('\[1\]'\)"),
        ("a.jsonl", GOOD.replace("}", ', "sketch": [1, 2]}') + '{"prompt": "a", "reward": 1, "sketch": [1]}\n',
         r"scores must be lists of equal length; row 3 of .*a\.jsonl has one of 1 numbers, and the first has 2"),
        ("a.jsonl", GOOD.replace("}", ', "sketch": [1, 2]}') + '{"prompt": "a", "reward": 1}\n',
         "row 3 of .* has no list, and the first has 2"),
        ("a.jsonl", GOOD.replace("}", ', "sketch": [1, null]}'), r"scores must be finite numbers; .*row 1 \(\[1, None\]\)"),
        ("a.parquet", b"PAR1 and no more", r"a\.parquet is no whole Parquet file: "),
        ("a.csv.gz", gzip.compress(b"prompt,reward\nx,1\nx,0\n" * 50, mtime=0)[:-12], r"a\.csv\.gz is no whole CSV table"),
        ("a.jsonl.gz", gzip.compress(GOOD.encode() * 50, mtime=0)[:-12], r"a\.jsonl\.gz is no whole file of JSON lines"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("blocks")
def test_each_fault_of_a_file_has_one_message(tmp_path, name, content, message):
    path = text(tmp_path / name, content)
    with pytest.raises(ValueError, match=message) as error:
        gt.read_rollouts(path)
    assert "\n" not in str(error.value)
    if "sketch" not in str(content) and "length" not in message:
        with pytest.raises(ValueError, match=re.escape(str(error.value))):
            gt.read_reward_counts(path)


def test_a_truncated_parquet_file(tmp_path):
    path = write(rows(), tmp_path / "whole.parquet")
    cut = text(tmp_path / "cut.parquet", path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"cut\.parquet is no whole Parquet file"):
        gt.read_rollouts(cut)
    data = path.read_bytes()
    torn = text(tmp_path / "torn.parquet", data[:200] + bytes(len(data) - 2200) + data[-2000:])
    with pytest.raises(ValueError, match=r"torn\.parquet"):
        gt.read_rollouts(torn)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"prompt": "id"}, ValueError, r"^prompt must be a column of the log, got 'id'; found the columns prompt_id, reward, "),
        ({"reward": "points"}, ValueError, r"reward must name columns of the log, got 'points'; found"),
        ({"reward": []}, ValueError, "reward must name columns of the log, got none"),
        ({"reward": {"reward": np.nan}}, ValueError, "reward must give each column a finite weight, got nan"),
        ({"reward": 3}, TypeError, "reward must be a column, a list of columns or their weights"),
        (
            {"scores": "s_"},
            ValueError,
            "scores must be a column of lists, or what stands before the numbers of columns; got 's_'",
        ),
        ({"length": 3}, TypeError, "length must be the name of a column"),
        ({"steps": "first"}, ValueError, "steps must be 'newest', 'last', 'all', a step or the first and last of"),
        ({"steps": 4}, ValueError, "steps must be 'newest' for a log without steps, got 4"),
        ({"batch_rows": 0}, ValueError, "batch_rows must be at least 1"),
    ],
)
def test_options_that_do_not_fit(tmp_path, options, error, message):
    path = write(rows(), tmp_path / "log.csv")
    with pytest.raises(error, match=message):
        gt.read_rollouts(path, **options)


def test_paths_that_do_not_fit(tmp_path):
    with pytest.raises(ValueError, match=r"path must be a file or a folder of files, and '.*absent' does not exist"):
        gt.read_rollouts(tmp_path / "absent")
    with pytest.raises(ValueError, match=r"path must be a file or a folder of files that end in .*; '.*' has none"):
        gt.read_rollouts(tmp_path)
    with pytest.raises(ValueError, match="path must be a file's or a folder's name, and is empty"):
        gt.read_rollouts("")
    with pytest.raises(TypeError, match="path must be a file's or a folder's name, got 3"):
        gt.read_rollouts(3)
    write(rows(), tmp_path / "1.csv")
    write(rows().drop(columns="reward"), tmp_path / "2.csv")
    with pytest.raises(ValueError, match=r"2\.csv has no column reward, as the files before it do; found prompt_id, length"):
        gt.read_rollouts(tmp_path)


def test_steps_that_are_not_there(tmp_path):
    path = write(steps_of(rows(count=40, prompts=8), 2, 3), tmp_path / "log.csv")
    with pytest.raises(ValueError, match="steps must name a step of the log: it has no step 7, and contains steps 2 to 3"):
        gt.read_rollouts(path, steps=7)


def test_many_rewards_and_many_batches_are_counted(tmp_path):
    """The tally puts its parts together many times over."""
    rng = np.random.default_rng(6)
    frame = pd.DataFrame({"prompt": rng.integers(0, 40, 3000), "reward": rng.normal(size=3000).round(2)})
    counts, found = gt.read_reward_counts(write(frame, tmp_path / "a.parquet"), batch_rows=11)
    assert same_counts(counts, gt.RaggedRollouts(frame.prompt, frame.reward).counts)
    assert len(found.rewards) > 100
    assert "values from" in str(found)


@pytest.mark.parametrize(
    ("values", "said"), [((1.0, -1.0, 0.5, -0.5), True), ((1.0, -1.0, 0.5, 0.5), False), ((0.0, 0.0, 1.0, -1.0), False)]
)
def test_rewards_that_sum_to_0_in_every_group_may_be_advantages(tmp_path, values, said):
    """One group that differs is no evidence; nor are rewards of which one group has another sum."""
    path = tmp_path / "log.csv"
    path.write_text("prompt_id,reward\n" + "".join(f"{'aabb'[i]},{value}\n" for i, value in enumerate(values)))
    remarks = gt.read_rollouts(path).findings.remarks
    assert any("sum to 0, as advantages do" in one for one in remarks) is said
