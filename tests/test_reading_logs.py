"""Readers of rollouts: every format gives back the rows that were written, and options do what they say."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tables import write

import grpo_theory as gt
from grpo_theory.logs.findings import filtered

KINDS = ["csv", "csv.gz", "jsonl", "jsonl.zst", "json", "parquet", "arrow"]


def frame_of(seed=3, count=400, prompts=30):
    """Rows with ragged groups, texts with commas, quotes and new lines, and prompts that come back."""
    rng = np.random.default_rng(seed)
    index = np.concatenate([np.repeat(np.arange(prompts), 2), rng.integers(0, prompts, count - 2 * prompts)])
    prompts = [f'prompt "{k}",\nline 2' if k % 3 else f"p{k}" for k in index]
    drawn = {"reward": rng.choice([0.0, 0.25, 1.0], count), "length": rng.integers(1, 500, count)}
    return pd.DataFrame({"prompt_id": prompts, **drawn, "response_id": np.arange(count), "extra": "é, x"})


def steps_of(frame, *steps):
    """Return the rows of a frame, those of each step drawn anew."""
    rng = np.random.default_rng(8)
    drawn = ({"step": s, "reward": rng.choice([0.0, 1.0], len(frame)), "response_id": rng.random(len(frame))} for s in steps)
    return pd.concat([frame.assign(**one) for one in drawn], ignore_index=True)


def put(frame, path):
    """Write a table in the format of the path's ending."""
    name = path.name
    if name.endswith("parquet"):
        frame.to_parquet(path, row_group_size=37)
    elif name.endswith("arrow"):
        frame.to_feather(path, compression="uncompressed")
    elif "csv" in name:
        frame.to_csv(path, index=False)
    else:
        text = frame.to_json(orient="records", lines=not name.endswith("json"))
        path.write_bytes(pa.compress(text.encode(), "zstd", asbytes=True) if name.endswith("zst") else text.encode())
    return path


# ---- formats


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_rows_back_in_any_order(tmp_path, kind):
    frame = frame_of()
    frame["sketch"] = list(np.random.default_rng(4).normal(size=(400, 3)))
    frame = frame.drop(columns="sketch") if "csv" in kind else frame
    log = gt.read_rollouts(put(frame, tmp_path / f"log.{kind}"))
    expected = gt.RaggedRollouts(frame.prompt_id, frame.reward)
    assert (log.rollouts.prompts.tolist(), log.rollouts.index.tolist()) == (expected.prompts.tolist(), expected.index.tolist())
    assert np.array_equal(log.rollouts.rewards, frame.reward)
    assert np.array_equal(log.lengths, frame.length)
    if "csv" not in kind:
        np.testing.assert_allclose(log.rollouts.scores, np.stack(frame["sketch"]), rtol=1e-9, atol=1e-9)
    found, groups = log.findings, frame.groupby("prompt_id").reward
    assert (found.files, found.rows, found.kept, found.prompts, found.groups) == (1, 400, 400, 30, 30)
    assert (found.sizes, found.uniform) == (groups.size().value_counts().to_dict(), (groups.nunique() == 1).sum())
    shuffled = gt.read_rollouts(put(frame.sample(frac=1.0, random_state=1), tmp_path / f"b.{kind}")).findings
    assert (shuffled.sizes, shuffled.rewards, shuffled.uniform) == (found.sizes, found.rewards, found.uniform)


@pytest.mark.parametrize("kind", KINDS)
def test_the_threads_of_arrow_are_lent_no_bytes_of_pythons(monkeypatch, tmp_path, kind):
    """One that lets go of them last, as the interpreter ends, aborts the process (apache/arrow#34314)."""
    path = put(frame_of(), tmp_path / f"log.{kind}")
    for name in ("BufferReader", "PythonFile", "py_buffer"):
        monkeypatch.delattr(pa, name)
    assert gt.read_rollouts(path).findings.rows == 400


def late(k):
    """Return a row whose messages have another order and field from row 300 on; the field is null until row 600."""
    message = {"role": "user", "content": "q"} if k < 300 else {"content": "q", "name": None if k < 600 else "n", "role": "user"}
    return {"prompt": [message], "reward": k % 2, "other": k if k < 500 else "text", "gts": "4" if k < 20 else [4, "four"]}


def of(*prompts, name="prompt", **more):
    """Return lines of rows with these prompts and rewards 1 and 0."""
    return "".join(json.dumps({name: one, "reward": 1 - k % 2} | more) + "\n" for k, one in enumerate(prompts))


PAIRS = [0, 0, 1, 1]
WRITTEN = {
    "truth in CSV": ("a.csv", "prompt,reward\na,True\na,false\nb,1\nb,0\n", PAIRS),
    "names of nothing": ("a.csv", "prompt,reward\nNA,1\nNA,0\nnull,1\nnull,0\n", PAIRS),
    "texts of numbers": ("a.jsonl", of(*"aabb").replace(" 1", ' "1"').replace("}", "}\n"), PAIRS),
    "an id as number and text": ("a.jsonl", of(7, "7", 8.0, "8"), PAIRS),
    "a field of nothing beside texts": ("a.jsonl", of({"c": "q", "n": None}, {"c": "q"}, "t", "t"), PAIRS),
    "ids beyond floats": ("a.csv", "prompt_id,reward\n" + "".join(f"{2**53 + k // 2},{1 - k % 2}\n" for k in range(4)), PAIRS),
    "prompts of tokens": ("a.jsonl", of([1, 2], [12], [1, 2], [12]), [0, 1, 0, 1]),
    "conversations": ("a.jsonl", of(*([{"role": "system", "content": f"be {k // 2}"}] for k in range(4))), PAIRS),
    "fields that come late": ("a.jsonl", "".join(f"{json.dumps(late(k))}\n" for k in range(900)), [0] * 600 + [1] * 300),
    "brackets in a text": ("a.jsonl", of(*["[{" * 300 + '"\\'] * 2), [0, 0]),
    "half a character in a column that is not read": ("a.jsonl", of(*"aabb", other="\ud800"), PAIRS),
    "lengths beyond whole numbers": ("a.jsonl", of(*"aabb", length=2**63), PAIRS),
}
"""Ways to write prompts and rewards 1, 0, 1, 0: file, content, and the place of each row's prompt."""


@pytest.mark.parametrize("name", WRITTEN)
def test_other_ways_to_write_the_same(name, tmp_path):
    file, content, index = WRITTEN[name]
    (tmp_path / file).write_text(content)
    log = gt.read_rollouts(tmp_path / file)
    assert log.rollouts.index.tolist() == index
    assert log.rollouts.rewards.tolist() == [float((k + (len(index) < 900)) % 2) for k in range(len(index))]
    assert log.lengths is None or np.isnan(log.lengths).all(), "no response is so long"


# ---- expressions


ROWS = [{"q": f"q{k // 4}", "part": {"right": k % 2, "form": 1.0}, "split": "b" if k < 8 else "c"} for k in range(16)]
for k, row in enumerate(ROWS):
    row |= {"reward-a": k, "turns": [{"reward": 1}, {"reward": k % 2}], "tokens": 10 + k, "text": f"[{k}, 2]"}


@pytest.mark.parametrize(
    ("reward", "values"),
    [
        ("part.right + 0.2 * part.form", lambda k: k % 2 + 0.2),
        ("part.right - tokens / 100", lambda k: k % 2 - 0.01 * (10 + k)),
        ("-part['right']", lambda k: -(k % 2)),
        ("total(turns.reward)", lambda k: 1.0 + k % 2),
        ("turns[-1].reward", lambda k: k % 2),
        ("size(text) * last(text)", lambda k: 4.0),
        ("reward-a", lambda k: float(k)),
        ("1 * (tokens >= 12 and not split == 'c')", lambda k: float(2 <= k < 8)),
        ("1 * (split in ('a', 'b') or 23 < tokens)", lambda k: float(k < 8 or k > 13)),
        ("round(`reward-a` / 3, 1)", lambda k: round(k / 3, 1)),
    ],
)
def test_a_column_is_an_expression(reward, values, tmp_path):
    log = gt.read_rollouts(write(tmp_path / "log.jsonl", ROWS), prompt="q", reward=reward, split="")
    assert log.rollouts.rewards.tolist() == pytest.approx([values(k) for k in range(16)], abs=1e-12)


def test_rows_files_and_columns_that_are_asked_for(tmp_path):
    path = write(tmp_path / "log.jsonl", ROWS)
    log = gt.read_rollouts(path, prompt="q", reward="part.right", where="split == 'c' and tokens > 19", keep=["tokens", "split"])
    assert (log.findings.rows, log.findings.left_out) == (16, {"rows not asked for (--where)": 10, **{}})
    assert (log.rows["tokens"].tolist(), set(log.rows["split"])) == (list(range(20, 26)), {"c"})
    for seed in (0, 1):
        for step in (10, 9):
            rows = [{"prompt": f"p{step}{k // 3}", "reward": (k + seed) % 2} for k in range(12)]
            write(tmp_path / "runs" / f"seed_{seed}" / f"step_{step}.jsonl", rows)
    with pytest.raises(ValueError, match=r"several runs \(0, 1\): choose one, as --files '\*seed_0\*'; --run-id '' pools them"):
        gt.read_rollouts(tmp_path / "runs")
    log = gt.read_rollouts(tmp_path / "runs", files="*seed_1*", steps="all")
    assert (log.findings.files, log.findings.steps, log.findings.groups) == (2, (9, 10), 8)
    assert [one[:2] for one in log.rollouts.prompts] == ["p9"] * 4 + ["p1"] * 4, "in the order of the numbers"
    assert gt.read_rollouts(tmp_path / "runs", run_id="", steps="all").findings.sizes == {6: 8}


# ---- steps


def test_groups_of_different_steps_stay_apart(tmp_path):
    frame = steps_of(frame_of(count=80, prompts=10), 3, 5, 6)
    path = put(frame, tmp_path / "log.parquet")
    log = gt.read_rollouts(path, steps="all")
    expected = gt.RaggedRollouts(list(zip(frame.step, frame.prompt_id, strict=True)), frame.reward)
    assert (log.findings.steps, log.findings.prompts, log.findings.groups) == ((3, 5, 6), 10, 30)
    assert np.array_equal(log.steps, frame.step)
    assert log.rollouts.prompts.tolist() == expected.prompts.tolist()
    assert np.array_equal(log.rollouts.counts.counts.toarray(), expected.counts.counts.toarray())
    for steps, kept in (("last", 6), (5, 5), ((6, 9), 6)):
        some = gt.read_rollouts(path, steps=steps)
        assert (some.findings.steps, some.findings.left_out) == ((kept,), {"groups of other steps": 20})
        assert np.array_equal(some.rollouts.rewards, frame.reward[frame.step == kept])
        assert len(some.rows) == len(frame), "the rows of all steps"


def test_of_each_prompt_the_newest_group_is_used(tmp_path):
    """Steps out of order in the file, prompts that do not come at every step, and a newest step that repeats the one before."""
    rng = np.random.default_rng(21)
    frame = steps_of(frame_of(count=160, prompts=20), 7, 2, 4)
    there = dict(zip(frame.groupby(["step", "prompt_id"]).groups, rng.random(60) < 0.6, strict=True))
    frame = frame[[there[one] for one in zip(frame.step, frame.prompt_id, strict=True)]]
    again = frame[frame.step == 7].sample(frac=1.0, random_state=2).assign(step=8)  # in another order, as after a shuffle
    path = put(pd.concat([frame, again]), tmp_path / "log.parquet")
    for steps, low, high in (("newest", 2, 8), ((2, 4), 2, 4), ((3, 9), 3, 9)):
        asked = frame[(frame.step >= low) & (frame.step <= high)]
        expected = asked[asked.step == asked.groupby("prompt_id").step.transform("max")]
        log = gt.read_rollouts(path, steps=steps)
        assert np.array_equal(log.rollouts.rewards, expected.reward)
        assert log.rollouts.prompts.tolist() == list(dict.fromkeys(expected.prompt_id))
        older = asked.groupby(["step", "prompt_id"]).ngroups - expected.prompt_id.nunique()
        assert log.findings.left_out["groups whose prompt has a newer one"] == older > 0
        assert log.findings.left_out["rows of 1 step that repeat the step before (8)"] == len(again)


@pytest.mark.parametrize("missing", [None, ""])
@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_rows_without_a_response_are_not_taken_for_repeats(missing, kind, tmp_path):
    """Groups of equal rewards were "repeated", and steps were left out."""
    step, prompt, place = (part.ravel() for part in np.indices((2, 3, 4)))
    frame = pd.DataFrame({"prompt": prompt, "response": missing, "reward": place % 2.0, "step": step})
    assert gt.read_rollouts(put(frame, tmp_path / f"log.{kind}"), steps="all").findings.kept == 24
    frame["response"] = [f"answer {k % 12}" for k in range(24)]
    assert gt.read_rollouts(put(frame, tmp_path / f"b.{kind}"), steps="all").findings.kept == 12
    frame.loc[[0, 12], "response"] = missing  # one row without a response makes its step one that is not known to be repeated
    assert gt.read_rollouts(put(frame, tmp_path / f"c.{kind}"), steps="all").findings.kept == 24


# ---- groups


def turns(rewards, texts):
    """Return rows of two prompts with two rollouts each, whose turns have these rewards and texts."""
    return [
        {"prompt": text.format(p), "id": p, "rollout": f"{p}{r}", "reward": reward + r, "length": 3, "lp": [-1.0, -2.0]}
        for p in range(2)
        for r in range(2)
        for reward, text in zip(rewards, texts, strict=True)
    ]


def test_rows_that_are_turns_are_one_response(tmp_path):
    path = write(tmp_path / "log.jsonl", turns((0, 1), ("{}", "{}")))
    with pytest.raises(ValueError, match="the rewards of a rollout's turns differ: --turns last"):
        gt.read_rollouts(path, rollout="rollout")
    log = gt.read_rollouts(path, rollout="rollout", turns="sum", trained="lp")
    assert (log.rows["reward"].tolist(), log.rows["turns"].tolist(), log.lengths.tolist()) == ([1, 3] * 2, [2] * 4, [6] * 4)
    assert log.rows["trained"][0] == [-1.0, -2.0] * 2
    assert gt.read_rollouts(path, rollout="rollout", turns="last").rows["reward"].tolist() == [1, 2] * 2


def test_texts_that_change_inside_a_rollout_are_no_prompts(tmp_path):
    """Each row was a group of its own, and counted as one with equal rewards."""
    rows = [one | {"prompt": f"{one['prompt']} {k}"} for k, one in enumerate(turns((1, 1), ("{} a", "{} b")))]
    path = write(tmp_path / "log.jsonl", rows)
    with pytest.raises(ValueError, match="8 of 8 groups have one response: prompt is no group's id, or the prompt's text ch"):
        gt.read_rollouts(path)
    log = gt.read_rollouts(path, group="id", rollout="rollout")
    assert (log.findings.sizes, log.findings.prompts) == ({2: 2}, 2)
    assert "prompts (prompt) differ inside groups" in str(log.findings)
    some = write(tmp_path / "few.jsonl", [{"prompt": k // 4, "reward": k % 2} for k in range(41)])
    assert "left out: 1 response without another to their prompt" in str(gt.read_rollouts(some).findings)
    assert gt.read_rollouts(some, lone="keep").findings.sizes == {1: 1, 4: 10}
    many = write(tmp_path / "many.jsonl", [{"prompt": k // 4 if k < 20 else k, "reward": k % 2} for k in range(22)])
    with pytest.raises(ValueError, match=r"2 of 7 groups have one response: .*--lone drop"):
        gt.read_rollouts(many)
    assert gt.read_rollouts(many, lone="drop").findings.sizes == {4: 5}


def test_the_same_groups_in_several_files_need_a_step(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / f"{name}.jsonl", [{"prompt": k // 4, "reward": k % 2} for k in range(16)])
    with pytest.raises(ValueError, match="4 of 4 groups are in several files, and no step is known: --step COLUMN"):
        gt.read_rollouts(tmp_path)
    found = gt.read_rollouts(tmp_path, step="1 * (file == 'b.jsonl')").findings
    assert found.left_out == {"groups whose prompt has a newer one": 4}


# ---- what the rows say


def test_what_looks_wrong_is_remarked_on(tmp_path):
    def remarks(rewards, **more):
        rows = [{"prompt": k // 4, "reward": r} | {name: of[k] for name, of in more.items()} for k, r in enumerate(rewards)]
        return str(gt.read_rollouts(write(tmp_path / "log.jsonl", rows)).findings)

    for values, said in (([1, -1, 0.5, -0.5], True), ([1, -1, 0.5, 0.5], False), ([0, 0, 1, -1], True)):
        assert ("sum to 0, as advantages do" in remarks(values * 3)) is said
    assert "In 1 of 2 groups rewards differ by 0.001 at most" in remarks([0, 8e-4] * 2 + [0, 1] * 2)
    envs = ["a"] * 8 + ["b"] * 8
    assert "other ranges are read as one: a 0 to 1, b 0 to 10" in remarks([0, 1] * 4 + [0, 10] * 4, env_name=envs)
    assert "other ranges" not in remarks([0, 1] * 4 + [0] * 8, env_name=envs)
    halves, ones = [0, 1, 0, 1], [0, 0, 0, 1]
    assert "different advantages: these may not be" in remarks(halves + ones, advantage=[-1, 1, -1, 1, 0, 1, 2, 3])
    assert "different advantages" not in remarks(halves + ones, advantage=[-1, 1, -1, 1, -1, -1, -1, 3])


def test_blocks_are_evidence_only_where_their_equal_rewards_agree(tmp_path):
    """Graded rewards with few ties were refused: blocks of 4 held no ties, and --group-of 4 was wrong advice."""
    graded = [{"prompt": k // 8, "reward": [0, 1, 2, 3, 0, 4, 5, 6][k % 8], "advantage": k % 8} for k in range(32)]
    log = gt.read_rollouts(write(tmp_path / "graded.jsonl", graded))
    assert "different advantages: these may not be" in str(log.findings)
    paired = [one | {"reward": k % 2, "advantage": (k % 2 - 0.5) * (1 + k // 4 % 2)} for k, one in enumerate(graded)]
    with pytest.raises(ValueError, match=r"agree in blocks of 4 rows: .*--group-of 4"):
        gt.read_rollouts(write(tmp_path / "paired.jsonl", paired))


def test_a_log_in_which_no_group_is_equal_says_so_whatever_its_size():
    """31 of 60 groups kept went unsaid. Of rewards that hardly ever tie nothing is to be expected."""
    rng = np.random.default_rng(11)
    for groups in (2, 31, 400):
        successes = rng.integers(1, 4, groups)
        rewards = (np.arange(4) < successes[:, None]).astype(float)
        index = np.repeat(np.arange(groups), 4)
        assert filtered(gt.RewardCounts.from_rewards(index, rewards.ravel()))
        rewards[0] = 1.0
        assert not filtered(gt.RewardCounts.from_rewards(index, rewards.ravel()))
        assert not filtered(gt.RewardCounts.from_rewards(index, rng.random(4 * groups)))
