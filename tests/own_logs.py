"""Logs of the kinds that trainers write, under names and in nestings of our own, made from one table of rewards."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

STEPS, PROMPTS, SIZE = 3, 5, 4


def rewards(seed=9):
    """Return rewards 0 and 1, (steps, prompts, size), with groups of equal rewards among them."""
    rng = np.random.default_rng(seed)
    return (rng.random((STEPS, PROMPTS, SIZE)) < rng.random((STEPS, PROMPTS, 1))).astype(float)


def lines(path: Path, rows) -> Path:
    """Write rows as JSON lines, packed if the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if path.suffix == ".gz":
        text = gzip.compress(text, mtime=0)
    if path.suffix == ".zst":
        text = pa.compress(text, codec="zstd", asbytes=True)
    path.write_bytes(text)
    return path


def each(found, step=None):
    """Yield step, prompt, place and reward of each response."""
    for at in np.ndindex(found.shape):
        if step is None or at[0] == step:
            yield (*at, float(found[at]))


def hive_parquet(folder, found):
    for step in range(STEPS):
        rows = [{"task_hash": f"h{step}{q}", "outcome": r} for _, q, _, r in each(found, step)]
        path = folder / f"split=train/iteration={step}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows).rename_columns(["task_hash", "success"]), path)
    other = folder / "split=validation/iteration=2/part-0.parquet"
    other.parent.mkdir(parents=True)
    pq.write_table(pa.table({"task_hash": ["v", "v"], "success": [1.0, 0.0]}), other)
    return folder


def index_in_file_name(folder, found):
    for step in range(STEPS):
        rows = ({"problem_index": q, "grade": r, "n_tokens": 9} for _, q, _, r in each(found, step))
        lines(folder / f"dump_iter{step:04d}.jsonl.zst", rows)
    return folder


def index_in_files_without_a_word(folder, found):
    for step in range(STEPS):
        lines(folder / f"samples-{step}.jsonl.gz", ({"idx": q, "is_correct": r > 0.0} for _, q, _, r in each(found, step)))
    return folder


def nested_objects(folder, found):
    rows = (
        {
            "meta": {"global_step": s, "problem": {"uid": f"{s}-{q}"}},
            "sample": {"text": "t", "eval": {"reward": {"total": r, "parts": {"a": r, "b": 0.0}}}},
        }
        for s, q, _, r in each(found)
    )
    return lines(folder / "episodes.ndjson", rows)


def lists_of_lists_a_step(folder, found):
    rows = (
        {"iteration": s, "questions": [f"q{s}{q}" for q in range(PROMPTS)], "returns": found[s].tolist(), "kl": 0.1}
        for s in range(STEPS)
    )
    return lines(folder / "steps.jsonl", rows)


def samples_in_a_document(folder, found):
    groups = [
        {"step": s, "question": f"q{s}{q}", "samples": [{"answer": f"{g}", "score": float(found[s, q, g])} for g in range(SIZE)]}
        for s in range(STEPS)
        for q in range(PROMPTS)
    ]
    path = folder / "rollouts.json"
    path.write_text(json.dumps({"model": "m", "groups": groups}, indent=1))
    return path


def pretty_array(folder, found):
    path = folder / "array.json"
    path.write_text(json.dumps([{"query": f"q{s}{q}", "train_step": s, "acc": r} for s, q, _, r in each(found)], indent=2))
    return path


def csv_of_lists(folder, found):
    text = "update,instruction,rewards\n" + "".join(
        f'{s},do {s}{q},"{json.dumps(found[s, q].tolist())}"\n' for s in range(STEPS) for q in range(PROMPTS)
    )
    path = folder / "table.csv"
    path.write_text(text)
    return path


def arrow_on_disk(folder, found):
    table = pa.Table.from_pylist([{"step": s, "item_id": f"{s}.{q}", "reward": r} for s, q, _, r in each(found)])
    inside = folder / "train"
    inside.mkdir()
    with pa.OSFile(str(inside / "data-00000-of-00001.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    (inside / "dataset_info.json").write_text(json.dumps({"features": {"reward": {"dtype": "float64"}}}, indent=2))
    (inside / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}, indent=2))
    return folder


def counts_in_csv(folder, found):
    text = "step,problem_id,num_solved,num_attempts\n" + "".join(
        f"{s},{s}_{q},{int(found[s, q].sum())},{SIZE}\n" for s in range(STEPS) for q in range(PROMPTS)
    )
    path = folder / "counts.csv"
    path.write_text(text)
    return path


def split_in_rows(folder, found):
    rows = [{"phase": "train", "step": s, "prompt": f"q{s}{q}", "reward": r} for s, q, _, r in each(found)]
    greedy = [{"phase": "eval", "step": 1, "prompt": "q10", "reward": 1.0}] * 7
    return lines(folder / "mixed.jsonl", [*rows[:9], *greedy, *rows[9:]])


def turns_of_episodes(folder, found):
    rows = (
        {
            "iter": s,
            "scenario": "x",
            "instance_id": f"{s}{q}",
            "episode_id": f"{s}{q}{g}",
            "turn_idx": turn,
            "reward": r * (turn == g),
        }
        for s, q, g, r in each(found)
        for turn in range(g + 1)
    )
    return lines(folder / "turns.jsonl", rows)


def arrays_of_groups(folder, found):
    for step in range(STEPS):
        rows = ([{"output": f"{g}", "reward": float(found[step, q, g])} for g in range(SIZE)] for q in range(PROMPTS))
        lines(folder / f"step{step}.jsonl", rows)
    return folder


def rows_by_key(folder, found):
    rows = {f"q{s}{q}": found[s, q].tolist() for s in range(STEPS) for q in range(PROMPTS)}
    path = folder / "by_prompt.json"
    path.write_text(json.dumps(rows))
    return path


def messages(folder, found):
    rows = (
        {
            "step": s,
            "messages": [{"role": "user", "content": f"q{s}{q}"}, {"role": "assistant", "content": f"{g}"}],
            "reward": r,
        }
        for s, q, g, r in each(found)
    )
    return lines(folder / "chat.jsonl", rows)


def two_groups_of_a_text(folder, found):
    rows = []
    for s in range(STEPS):
        for q in range(PROMPTS - 1):
            group = found[s, q]
            rows += [
                {
                    "step": s,
                    "prompt": f"q{s}{q // 2}",
                    "completion": f"{q}{g}",
                    "accuracy": float(r),
                    "advantage": float(r - group.mean()),
                }
                for g, r in enumerate(group)
            ]
        group = found[s, PROMPTS - 1]
        rows += [
            {"step": s, "prompt": f"z{s}", "completion": f"{g}", "accuracy": float(r), "advantage": float(r - group.mean())}
            for g, r in enumerate(group)
        ]
    return lines(folder / "images.jsonl", rows)


def begins_late(folder, found):
    rows = [{"step": s, "prompt": f"q{s}{q}", "note": None, "reward": r} for s, q, _, r in each(found)]
    path = lines(folder / "late.jsonl", rows)
    held = [json.loads(line) for line in path.read_text().splitlines()]
    for k, row in enumerate(held):
        if k < 30:
            del row["note"]
        else:
            row["note"] = {"text": k}
    return lines(path, held)


def a_line_of_scores_a_group(folder, found):
    rows = [
        {"train_iter": s, "tokens": [[1, 2, 3]] * SIZE, "scores": found[s, q].tolist(), "group_overrides": None}
        for s in range(STEPS)
        for q in range(PROMPTS)
    ]
    return lines(folder / "groups.jsonl", rows)


def samples_with_an_object_for_a_reward(folder, found):
    rows = (
        {
            "rollout_step": s,
            "samples": [
                {"group_index": q, "prompt": f"q{s}{q}", "response": f"{g}", "reward": {"score": float(found[s, q, g])}}
                for q in range(PROMPTS)
                for g in range(SIZE)
            ],
        }
        for s in range(STEPS)
    )
    return lines(folder / "debug.jsonl", rows)


def turns_under_the_name_of_steps(folder, found):
    rows = (
        {"epoch": s, "step": turn, "qid": f"{s}{q}", "session_id": f"{s}{q}{g}", "reward": r}
        for s, q, g, r in each(found)
        for turn in range(1 + (q + g) % 3)
    )
    return lines(folder / "agents.jsonl", rows)


LOGS = {one.__name__: one for one in (
    hive_parquet, index_in_file_name, index_in_files_without_a_word, nested_objects, lists_of_lists_a_step, samples_in_a_document,
    pretty_array, csv_of_lists, arrow_on_disk, counts_in_csv, split_in_rows, turns_of_episodes, arrays_of_groups, rows_by_key,
    messages, two_groups_of_a_text, begins_late, a_line_of_scores_a_group, samples_with_an_object_for_a_reward,
    turns_under_the_name_of_steps,
)}  # fmt: skip
"""Each writes a log in a folder and returns its path; all hold the same groups."""
