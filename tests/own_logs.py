"""Logs of the kinds that trainers write, under names and in nestings of our own, made from one table of rewards."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tables import write

STEPS, PROMPTS, SIZE = 3, 5, 4


def rewards(seed=9):
    """Return rewards 0 and 1, (steps, prompts, size), with groups of equal rewards among them."""
    rng = np.random.default_rng(seed)
    return (rng.random((STEPS, PROMPTS, SIZE)) < rng.random((STEPS, PROMPTS, 1))).astype(float)


def each(found):
    """Yield step, prompt, place and reward of each response."""
    for at in np.ndindex(found.shape):
        yield (*at, float(found[at]))


def responses(name, row):
    """Return a writer of rows, one a response or a list of them, in files whose names may have the step."""

    def writer(folder, found):
        files = {}
        for s, q, g, r in each(found):
            made = row(s, q, g, r)
            files.setdefault(name.format(s), []).extend(made if isinstance(made, list) else [made])
        for path, rows in files.items():
            write(folder / path, rows)
        return folder

    return writer


def groups(name, row):
    """Return a writer of rows, one a group."""
    return lambda folder, found: write(
        folder / name, [row(s, q, found[s, q].tolist()) for s in range(STEPS) for q in range(PROMPTS)]
    )


def steps(name, row):
    """Return a writer of rows, one a step."""
    return lambda folder, found: write(folder / name, [row(s, found[s].tolist()) for s in range(STEPS)])


def text(name, make):
    """Return a writer of a text that is made of all groups: step, prompt and rewards."""

    def writer(folder, found):
        path = folder / name
        path.write_text(make([(s, q, found[s, q].tolist()) for s in range(STEPS) for q in range(PROMPTS)]))
        return path

    return writer


def hive_parquet(folder, found):
    """Write a folder for each step, and one of evaluation."""
    parts = {f"split=train/iteration={s}": ([f"h{s}{q}" for q in range(PROMPTS)], found[s]) for s in range(STEPS)}
    for name, (prompts, values) in (parts | {"split=validation/iteration=2": (["v"], np.array([[1.0, 0.0]]))}).items():
        (folder / name).mkdir(parents=True)
        table = {"task_hash": np.repeat(prompts, values.shape[1]), "success": values.ravel()}
        pq.write_table(pa.table(table), folder / name / "part-0.parquet")
    return folder


def arrow_on_disk(folder, found):
    """Write what a data set's save_to_disk does."""
    table = pa.Table.from_pylist([{"step": s, "item_id": f"{s}.{q}", "reward": r} for s, q, _, r in each(found)])
    inside = folder / "train"
    inside.mkdir()
    with pa.OSFile(str(inside / "data-00000-of-00001.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    (inside / "dataset_info.json").write_text(json.dumps({"features": {"reward": {"dtype": "float64"}}}, indent=2))
    (inside / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}, indent=2))
    return folder


def with_evaluation(folder, found):
    """Write rows of training with some of greedy evaluation between them."""
    rows = [{"phase": "train", "step": s, "prompt": f"q{s}{q}", "reward": r} for s, q, _, r in each(found)]
    return write(
        folder / "mixed.jsonl", [*rows[:9], *[{"phase": "eval", "step": 1, "prompt": "q10", "reward": 1.0}] * 7, *rows[9:]]
    )


def chat(s, q, g):
    """Return a conversation."""
    return [{"role": "user", "content": f"q{s}{q}"}, {"role": "assistant", "content": f"{g}"}]


LOGS = {
    "hive parquet": hive_parquet,
    "arrow on disk": arrow_on_disk,
    "evaluation between": with_evaluation,
    "index and step in file names": responses(
        "dump_iter{:04d}.jsonl.zst", lambda s, q, g, r: {"problem_index": q, "grade": r, "n_tokens": 9}
    ),
    "nested objects": responses(
        "episodes.ndjson",
        lambda s, q, g, r: {
            "meta": {"global_step": s, "problem": {"uid": f"{s}-{q}"}},
            "sample": {"text": "t", "eval": {"reward": {"total": r, "parts": {"a": r, "b": 0.0}}}},
        },
    ),
    "conversations": responses("chat.jsonl", lambda s, q, g, r: {"step": s, "messages": chat(s, q, g), "reward": r}),
    "turns of episodes": responses(
        "turns.jsonl",
        lambda s, q, g, r: [
            {"iter": s, "instance_id": f"{s}{q}", "episode_id": f"{s}{q}{g}", "turn_idx": turn, "reward": r * (turn == g)}
            for turn in range(g + 1)
        ],
    ),
    "turns under the name of steps": responses(
        "agents.jsonl",
        lambda s, q, g, r: [
            {"epoch": s, "step": turn, "qid": f"{s}{q}", "session_id": f"{s}{q}{g}", "reward": r}
            for turn in range(1 + (q + g) % 3)
        ],
    ),
    "lists of lists a step": steps(
        "steps.jsonl",
        lambda s, values: {"iteration": s, "questions": [f"q{s}{q}" for q in range(PROMPTS)], "returns": values, "kl": 0.1},
    ),
    "samples whose reward is an object": steps(
        "debug.jsonl",
        lambda s, values: {
            "rollout_step": s,
            "samples": [
                {"group_index": q, "prompt": f"q{s}{q}", "response": f"{g}", "reward": {"score": r}}
                for q, group in enumerate(values)
                for g, r in enumerate(group)
            ],
        },
    ),
    "a line of scores a group": groups(
        "groups.jsonl", lambda s, q, values: {"train_iter": s, "tokens": [[1, 2, 3]] * SIZE, "scores": values, "overrides": None}
    ),
    "rows by key": text("by_prompt.json", lambda found: json.dumps({f"q{s}{q}": values for s, q, values in found})),
    "a table of lists": text(
        "table.csv",
        lambda found: "update,instruction,rewards\n" + "".join(f'{s},do {s}{q},"{json.dumps(own)}"\n' for s, q, own in found),
    ),
    "a table of counts": text(
        "counts.csv",
        lambda found: (
            "step,problem_id,num_solved,num_attempts\n" + "".join(f"{s},{s}_{q},{int(sum(own))},{SIZE}\n" for s, q, own in found)
        ),
    ),
}
"""Each writes a log in a folder and returns its path; all hold the same groups."""
