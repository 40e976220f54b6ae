"""Readers of rollouts: every format gives back the rows that were written, and options do what they say."""

import json
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables import read, same_counts, write

import grpo_theory as gt
from grpo_theory.logs import log_file
from grpo_theory.logs.reward_counts import filtered


def frame_of(seed=3, count=400, prompts=30):
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


def steps_of(frame, *steps):
    """Return the rows of a frame, those of each step drawn anew."""
    rng = np.random.default_rng(8)
    drawn = ({"step": s, "reward": rng.choice([0.0, 1.0], len(frame)), "response_id": rng.random(len(frame))} for s in steps)
    return pd.concat([frame.assign(**one) for one in drawn])


def put(frame, path):
    """Write a table in the format of the path's ending."""
    name, compression = path.name.lower(), "gzip" if path.suffix.lower() == ".gz" else None
    if name.endswith("parquet"):
        frame.to_parquet(path, row_group_size=37)
    elif "csv" in name:
        frame.to_csv(path, index=False, compression=compression)
    else:
        frame.to_json(path, orient="records", lines=True, compression=compression)
    return path


# ---- formats


@pytest.mark.parametrize("kind", ["csv", "CSV.gz", "Jsonl.GZ", "json", "PARQUET"])
@pytest.mark.parametrize(("batch_rows", "block"), [(7, 500), (65536, 10**6)])
def test_every_format_gives_the_rows_back(tmp_path, monkeypatch, kind, batch_rows, block):
    monkeypatch.setattr(log_file, "BLOCK", block)
    frame = frame_of()
    log = read(put(frame, tmp_path / f"log.{kind}"), batch_rows=batch_rows)
    expected = gt.RaggedRollouts(frame.prompt_id, frame.reward)
    assert (log.rollouts.prompts.tolist(), log.rollouts.index.tolist()) == (expected.prompts.tolist(), expected.index.tolist())
    assert np.array_equal(log.rollouts.rewards, frame.reward)
    assert np.array_equal(log.lengths, frame.length)
    found, groups = log.findings, frame.groupby("prompt_id").reward
    assert (found.files, found.rows, found.kept, found.prompts, found.groups) == (1, 400, 400, 30, 30)
    assert found.sizes == dict(sorted(Counter(groups.size()).items()))
    assert found.uniform == (groups.nunique() == 1).sum()
    assert found.columns == {"prompt": "prompt_id", "reward": "reward", "length": "length", "response": "response_id"}


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
def test_scores_are_read(tmp_path, kind):
    scores, frame = np.random.default_rng(4).normal(size=(400, 3)), frame_of()
    numbered = frame.assign(**{f"s_{k}": scores[:, k] for k in (2, 0, 1)})
    logs = [gt.read_rollouts(put(numbered, tmp_path / f"a.{kind}"), scores="s_", batch_rows=33)]
    if kind != "csv":
        logs.append(gt.read_rollouts(put(frame.assign(sketch=list(scores)), tmp_path / f"b.{kind}"), batch_rows=33))
    for log in logs:
        np.testing.assert_allclose(log.rollouts.scores, scores, rtol=1e-9, atol=1e-9)
    assert [log.findings.columns["scores"] for log in logs] == ["s_0 ... s_2", "sketch"][: len(logs)]


def late(k):
    """Return a row whose messages have another order and field from row 300 on; the field is null until row 600."""
    message = {"role": "user", "content": "q"} if k < 300 else {"content": "q", "name": None if k < 600 else "n", "role": "user"}
    return {"prompt": [message], "reward": k % 2, "other": k if k < 500 else "text", "gts": "4" if k < 20 else [4, "four"]}


def of(*prompts, name="prompt"):
    """Return lines of rows with these prompts and rewards 1 and 0."""
    return "".join(json.dumps({name: one, "reward": 1 - k % 2}) + "\n" for k, one in enumerate(prompts))


def talk(system):
    return [{"role": "system", "content": system}, {"role": "user", "content": "q"}]


PAIRS = [0, 0, 1, 1]
WRITTEN = {
    "truth in CSV": ("a.csv", "prompt,reward\na,True\na,false\nb,1\nb,0\n", PAIRS),
    "names of nothing": ("a.csv", "prompt,reward\nNA,1\nNA,0\nnull,1\nnull,0\n", PAIRS),
    "texts of numbers": ("a.jsonl", of(*"aabb").replace(" 1", ' "1"').replace("}", "}\n"), PAIRS),
    "capitals and spaces": ("a.csv", "Prompt_ID, Reward\n7, 1\n7, 0\n8, 1\n8, 0\n", PAIRS),
    "an id as number and text": ("a.jsonl", of(7, "7", 8.0, 8), PAIRS),
    "ids beyond floats": ("a.csv", "prompt_id,reward\n" + "".join(f"{2**53 + k // 2},{1 - k % 2}\n" for k in range(4)), PAIRS),
    "prompts of tokens": ("a.jsonl", of([1, 2], [12], [1, 2], [12]), [0, 1, 0, 1]),
    "conversations": ("a.jsonl", of(talk("be 0"), talk("be 0"), talk("be 1"), talk("be 1")), PAIRS),
    "fields that come late": ("a.jsonl", "".join(f"{json.dumps(late(k))}\n" for k in range(900)), [0] * 600 + [1] * 300),
    "brackets in a text": ("a.jsonl", of(*["[{" * 300 + '"\\'] * 2), [0, 0]),
    "a row longer than a block": ("a.jsonl", of(*["y" * 2000] * 2), [0, 0]),
}
"""Ways to write prompts and rewards 1, 0, 1, 0: file, content, and the place of each row's prompt."""


@pytest.mark.parametrize("block", [500, 10**6])
@pytest.mark.parametrize("name", WRITTEN)
def test_other_ways_to_write_the_same(name, block, tmp_path, monkeypatch):
    monkeypatch.setattr(log_file, "BLOCK", block)
    file, content, index = WRITTEN[name]
    (tmp_path / file).write_text(content)
    log = read(tmp_path / file)
    assert log.rollouts.index.tolist() == index
    assert log.rollouts.rewards.tolist() == [float((k + (len(index) < 900)) % 2) for k in range(len(index))]


def test_dictionaries_and_lists_of_lists_in_parquet(tmp_path):
    encoded = pa.table({"prompt": pa.array(list("aabb")).dictionary_encode(), "reward": pa.array([1, 0, 1, 0], pa.uint8())})
    nested = pa.table({"prompt": pa.array([[[1, 2], [3]], [[1], [2, 3]]] * 2), "reward": [1.0, 0.0, 0.0, 1.0]})
    for table, index in ((encoded, [0, 0, 1, 1]), (nested, [0, 1, 0, 1])):
        pq.write_table(table, tmp_path / "a.parquet")
        assert read(tmp_path / "a.parquet").rollouts.index.tolist() == index


# ---- steps


def test_groups_of_different_steps_stay_apart(tmp_path):
    frame = steps_of(frame_of(count=60, prompts=10), 3, 5, 6)
    path = put(frame, tmp_path / "log.parquet")
    log = read(path, batch_rows=50, steps="all")
    expected = gt.RaggedRollouts(list(zip(frame.step, frame.prompt_id, strict=True)), frame.reward)
    assert (log.findings.steps, log.findings.prompts, log.findings.groups) == ((3, 5, 6), 10, 30)
    assert np.array_equal(log.steps, frame.step)
    assert same_counts(log.rollouts.counts, expected.counts)
    for steps, kept in (("last", 6), (5, 5), ((6, 9), 6)):
        some = read(path, steps=steps, batch_rows=50)
        assert (some.findings.steps, some.findings.other_steps) == ((kept,), 2)
        assert np.array_equal(some.rollouts.rewards, frame.reward[frame.step == kept])


def test_of_each_prompt_the_newest_group_is_used(tmp_path):
    """Steps out of order in the file, prompts that do not come at every step, and a newest step that repeats the one before."""
    rng = np.random.default_rng(21)
    frame = steps_of(frame_of(count=120, prompts=20), 7, 2, 4)
    frame = frame[rng.random(len(frame)) < 0.4]
    path = put(pd.concat([frame, frame[frame.step == 7].assign(step=8)]), tmp_path / "log.parquet")
    for steps, low, high in (("newest", 2, 8), ((2, 4), 2, 4), ((3, 9), 3, 9)):
        asked = frame[(frame.step >= low) & (frame.step <= high)]
        expected = asked[asked.step == asked.groupby("prompt_id").step.transform("max")]
        log = read(path, steps=steps, batch_rows=13)
        assert np.array_equal(log.rollouts.rewards, expected.reward)
        assert log.rollouts.prompts.tolist() == list(dict.fromkeys(expected.prompt_id))
        assert log.findings.older_groups == asked.groupby(["step", "prompt_id"]).ngroups - expected.prompt_id.nunique() > 0


def test_steps_and_rows_that_repeat_are_told(tmp_path):
    one = steps_of(frame_of(count=60, prompts=10), 1)
    twice = one.sample(frac=1.0, random_state=2).assign(step=2)  # in another order, as after a shuffle
    path = put(pd.concat([one, twice, twice.assign(step=3, reward=1.0 - twice.reward)]), tmp_path / "log.jsonl")
    found = gt.read_rollouts(path, batch_rows=7, steps="all").findings
    assert (found.repeated_steps, found.steps, found.rows, found.kept) == ((2,), (1, 3), 180, 120)
    third = twice.copy()
    third.iloc[4, third.columns.get_loc("reward")] += 1.0
    assert gt.read_rollouts(put(pd.concat([one, third]), tmp_path / "b.jsonl")).findings.repeated_steps == ()
    again = put(pd.concat([one, one.iloc[[5, 5, 9]]]), tmp_path / "c.csv")
    assert gt.read_rollouts(again).findings.duplicates == 3


@pytest.mark.parametrize("missing", [None, ""])
@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_rows_without_a_response_are_not_taken_for_repeats(missing, kind, tmp_path):
    """Groups of equal rewards were "repeated", rows and steps alike, and steps were left out."""
    step, prompt, place = (part.ravel() for part in np.indices((2, 3, 4)))
    frame = pd.DataFrame({"prompt": prompt, "response": missing, "reward": place % 2.0, "step": step})
    found = gt.read_rollouts(put(frame, tmp_path / f"log.{kind}"), steps="all").findings
    assert (found.duplicates, found.repeated_steps, found.kept) == (0, (), 24)
    frame["response"] = [f"answer {k % 12}" for k in range(24)]
    frame.loc[[0, 12], "response"] = missing  # one row without a response makes its step one that is not known to be repeated
    assert gt.read_rollouts(put(frame, tmp_path / f"c.{kind}"), steps="all").findings.repeated_steps == ()


# ---- options

ROWS = [
    {
        "q": f"q{k // 4}",
        "part": {"right": k % 2, "form": 1.0},
        "split": "a" if k < 8 else "b",
        "turns": [{"reward": 1}, {"reward": k % 2}],
        "tokens": 10 + k,
    }
    for k in range(16)
]


@pytest.mark.parametrize(
    ("options", "rewards", "named"),
    [
        ({"reward": {"part.right": 1.0, "part.form": 0.2}}, lambda k: k % 2 + 0.2, "part.right + 0.2 * part.form"),
        ({"reward": {"part.right": 1.0, "tokens": -0.01}}, lambda k: k % 2 - 0.01 * (10 + k), "part.right - 0.01 * tokens"),
        ({"reward": ["part.right", "part.form"]}, lambda k: k % 2 + 1.0, "part.right + part.form"),
        ({"reward": "turns.reward.sum"}, lambda k: 1.0 + k % 2, "turns.reward.sum"),
        ({"reward": "turns.reward.-1", "prompt": ["split", "q"]}, lambda k: k % 2, "turns.reward.-1"),
    ],
)
def test_paths_and_weights(options, rewards, named, tmp_path):
    log = read(write(tmp_path / "log.jsonl", ROWS), **({"prompt": "q"} | options))
    assert log.rollouts.rewards.tolist() == pytest.approx([rewards(k) for k in range(16)], abs=1e-15)
    assert log.findings.columns["reward"] == named


def test_rows_and_files_that_are_asked_for(tmp_path):
    path = write(tmp_path / "log.jsonl", ROWS)
    found = read(path, prompt="q", reward="part.right", where={"split": "b"}).findings
    assert (found.rows, found.kept) == (16, 8)
    for seed in (0, 1):
        for step in (10, 9):
            rows = [{"prompt": f"p{step}{k // 3}", "reward": (k + seed) % 2} for k in range(12)]
            write(tmp_path / "runs" / f"seed_{seed}" / f"step_{step}.jsonl", rows)
    with pytest.raises(ValueError, match=r"several \(seed = 0, 1\): choose one, as where=\{'seed': 0\} or --where seed=0"):
        gt.read_rollouts(tmp_path / "runs")
    log = gt.read_rollouts(tmp_path / "runs", where={"seed": 1}, steps="all")
    assert (log.findings.files, log.findings.steps, log.findings.groups) == (2, (9, 10), 8)
    assert [step for step, _ in log.rollouts.prompts] == [9] * 4 + [10] * 4, "in the order of the numbers"
    assert gt.read_rollouts(tmp_path / "runs", where={"path": "*_1/*_9*"}).findings.files == 1


def test_rows_one_after_another_are_groups(tmp_path):
    rewards = np.arange(24) % 5 % 2
    path = write(tmp_path / "log.jsonl", [{"prompt": "p", "reward": float(r)} for r in rewards])
    log = read(path, group_of=6, batch_rows=5)
    assert log.rollouts.counts.successes.tolist() == rewards.reshape(4, 6).sum(axis=1).tolist()


def test_rows_without_a_reward_and_rates(tmp_path):
    path = write(
        tmp_path / "a.jsonl", [{"prompt": k // 4, "reward": None if k == 5 else float(k % 2), "form": 1.0} for k in range(16)]
    )
    left, zero = (read(path, unscored=how) for how in ("leave", "zero"))
    assert (left.findings.kept, left.findings.sizes) == (15, {3: 1, 4: 3})
    assert (zero.findings.kept, zero.rollouts.rewards[5]) == (16, 0.0)
    assert read(path, reward={"reward": 1.0, "form": 0.5}).rollouts.rewards[[5, 7]].tolist() == [0.5, 1.5]
    rates = write(tmp_path / "rates.jsonl", [{"problem": f"p{k}", "solve_rate": k / 4} for k in range(4)])
    assert read(rates, reward="solve_rate@4").rollouts.counts.successes.tolist() == [0, 1, 2, 3]


def test_what_looks_wrong_is_remarked_on(tmp_path):
    """Blocks of a prompt, groups of twice the size, sums of 0 in all of several groups; and no remark where rows alternate."""

    def remarks(prompts, rewards):
        rows = [{"prompt": f"p{p}", "reward": float(r)} for p, r in zip(prompts, rewards, strict=True)]
        return str(read(write(tmp_path / "log.jsonl", rows)).findings)

    halves = [0, 1, 0, 1]
    assert "The rows of 2 of 4 groups come in several blocks of 4 rows" in remarks(np.repeat([0, 1, 2, 0, 3, 1], 4), halves * 6)
    assert "some a multiple of that (1 of 8)" in remarks(np.repeat([0, 0, 1, 2, 3, 4], 4), halves * 6)
    assert "block" not in remarks(np.tile(np.arange(4), 4), np.repeat([0, 1], 8))
    for values, said in (([1.0, -1.0, 0.5, -0.5], True), ([1.0, -1.0, 0.5, 0.5], False), ([0.0, 0.0, 1.0, -1.0], False)):
        assert ("sum to 0, as advantages do" in remarks([0, 0, 1, 1], values)) is said


def test_a_filter_before_logging_is_found_and_no_log_without_one_is_suspected():
    """At 300 draws each: groups as they come are suspected hardly ever, and filtered ones of small size nearly always."""
    rng = np.random.default_rng(11)
    suspected = {False: 0, True: 0}
    for _ in range(300):
        successes = rng.binomial(4, rng.beta(2.0, 2.0, 400))
        for chosen in suspected:
            kept = successes[(successes > 0) & (successes < 4)] if chosen else successes
            rewards = (np.arange(4) < kept[:60, None]).astype(float)
            suspected[chosen] += filtered(gt.RewardCounts.from_rewards(np.repeat(np.arange(60), 4), rewards.ravel())) > 0.0
    assert suspected == {False: 0, True: 300}
