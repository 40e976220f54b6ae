"""The names under which trainers and their users log rollouts, and the messages on a name that a log does not have."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from grpo_theory.logs.log_folder import BARE, EVALUATION, words
from grpo_theory.logs.nested_rows import BUT_LAST, ROW, Field
from grpo_theory.user_text import listed

RECOGNISED: dict[str, tuple[str, ...]] = {
    "prompt": (
        "prompt_id",
        "prompt_idx",
        "prompt_index",
        "example_id",
        "problem_id",
        "question_id",
        "prompt",
        "input",
        "question",
    ),
    "reward": ("reward", "score", "total_reward", "final_reward", "rewards", "return", "total_score", "final_score"),
    "length": ("length", "completion_length", "response_length", "completion_tokens", "num_tokens"),
    "response": ("response_id", "completion_id", "request_id", "uid", "completion", "response", "output"),
    "step": (
        *("step", "global_step", "training_step", "train_step", "iteration", "iter", "update"),
        *("policy_version", "weight_version", "weights_version", "epoch"),
    ),
    "scores": ("sketch", "sketches"),
}
"""Names by what they mean; the first that a log has is taken, whether or not it has capitals or spaces around it.

TRL's log_completions writes step, prompt, completion, a column for each reward function, and advantage. The rollout_data_dir of
verl has input, output, gts, score, step, and request_id or uid. Logs of verifiers and prime-rl have example_id, prompt,
completion and reward. A list called scores is not taken for gradients unless it is named: graders write their marks under this
name.
"""

TRL = {"step", "prompt", "completion"}
"""What every table of TRL's has beside its reward functions, which have names of their own, and the advantage."""
ADVANTAGES = ("advantage", "advantages")
PATH_STEPS = ("step", "steps", "iteration", "iter", "update", "version", "v", "epoch", BARE)
"""Words before a number in a path that make it a step, the surest first."""
STEPS = {"step", "iteration", "iter", "update", "version"}
OF_STEPS = {
    "global",
    "train",
    "training",
    "trainer",
    "policy",
    "model",
    "weight",
    "weights",
    "optimizer",
    "rollout",
    "current",
    "head",
}
"""A step of training may have words of both, and no others: num_steps and step_idx are none."""
RESPONSES = {"response", "completion", "output", "generation", "prediction"}
"""Words of a response's text."""
PROMPTS = {
    "qid",
    "doc",
    "prompt",
    "problem",
    "question",
    "query",
    "task",
    "example",
    "item",
    "instance",
    "puzzle",
    "exercise",
    "instruction",
}
GROUPS = {"group", "uid"}
TRAJECTORIES = {"traj", "trajectory", "episode", "rollout", "conversation", "session"}
POSITIONS = {"idx", "index", "no", "number", "num", "nr", "position"}
IDS = {"id", "key", "hash", "uid", "uuid", "name", *POSITIONS}
TEXTS = {"text", "str", "string", "content", "raw"}
TOKENS = {"token", "tokens", "ids"}
WEAK = ("id", "idx", "index", "key", "name")
"""Names of an id of no matter what: of a prompt where rows hold several responses, or where it comes back."""
TURNS = {"turn", "turns", "round"}
PIECES = {"step", "steps", "turn", "turns", "message", "messages", "node", "nodes", "token", "tokens", "history", "logs", "calls"}
"""Lists of these are pieces of one response, not responses."""
SUMS = {"total", "overall", "final", "sum"}
"""A column with such a name, and no other word in it, may be the sum of the rewards beside it."""
REWARDING = (
    *("reward", "rewards", "return", "returns", "correct", "correctness", "accuracy", "acc", "passed", "success", "solved"),
    *("match", "score", "scores", "grade", "grades", "outcome", "outcomes"),
)
"""Words of rewards, the surest first."""
NO_REWARD = {
    *("n", "num", "count", "counts", "length", "len", "tokens", "time", "seconds", "turns", "calls", "id", "idx", "index", "std"),
    *("advantage", "advantages", "weight", "mean", "max", "min", "threshold", "model", "step", "total", "logprob", "logprobs"),
}
"""Words of numbers that are no rewards."""
SUCCESSES = {"correct", "success", "successes", "passed", "passes", "solved", "right", "hits", "wins"}
COUNTS = {"n", "num", "number", "count", "total", "c"}
RATES = {"rate", "ratio", "fraction", "frac", "mean", "avg"}
RATED = {"pass", "passed", "success", "solve", "solved", "correct", "win", "accuracy", "acc"}
"""A share of successes has a word of both."""
TOTAL_WORDS = {"attempt", "attempts", "tries", "trial", "trials", "sample", "samples", "rollout", "rollouts", "run", "runs"} | {
    *("response", "responses", "completion", "completions", "generation", "generations", "draws"),
}
"""Words of such a name, alone or with a word of counting."""
TOTALS = (
    *("k", "n", "n_samples", "num_samples", "n_attempts", "num_attempts", "attempts", "samples", "trials", "n_trials", "total"),
    *("num_rollouts", "n_rollouts", "rollouts", "n_total", "num_total", "group_size", "num_generations", "n_responses"),
    *("num_responses", "n_completions", "num_completions", "count", "num_trials", "num_runs", "n_runs"),
)
"""Names of the number of responses of a prompt that is one row."""
SPLITS = {"split", "mode", "phase", "stage", "partition", "subset"}
EVALUATING = {"eval", "evaluation", "validation", "val", "test", "greedy"}
"""Words of a column of truth values that says that a row is not of training."""

Fields = Mapping[str, Field]


FILE = "file"
"""The column of a file's place among the files."""


def plain(path: str) -> str:
    """Return a path as names are compared."""
    return path.strip().lower()


def last_words(path: str) -> list[str]:
    """Return the words of the last part of a path; of the last two where the last is a mere id or text."""
    parts = [part for part in path.split(".") if part not in (BUT_LAST,)]
    own = words(parts[-1])
    return own if len(parts) == 1 or not set(own) <= IDS | TEXTS else words(parts[-2]) + own


def exact(role: str, fields: Fields) -> list[str]:
    """Return the columns at the top with a recognised name, in the order of the names."""
    at = {plain(path): path for path in reversed([path for path, one in fields.items() if not one.lists])}
    return [at[name] for name in RECOGNISED[role] if name in at]


def named_like(nouns: Iterable[str], others: Iterable[str], fields: Fields) -> list[str]:
    """Return the paths whose words are one of the nouns and nothing but other words, the least deep first."""
    nouns, allowed = set(nouns), {*nouns, *others}
    found = [path for path in fields if nouns & set(last_words(path)) and set(last_words(path)) <= allowed]
    return sorted(found, key=lambda path: (len(fields[path].lists), path.count(".")))


def prompt_texts(fields: Fields) -> list[str]:
    """Return the paths of prompts' texts, conversations and tokens."""
    texts = [path for path in named_like({*PROMPTS, "input"}, TEXTS, fields) if fields[path].kind != "number"]
    texts = [path for path in texts if not is_prompt_id(path)]
    tokens = named_like(PROMPTS, TOKENS, fields)
    return [*texts, *(path for path in tokens if fields[path].kind == "list"), *conversations(fields)]


def conversations(fields: Fields) -> list[str]:
    """Return the paths of a prompt in [prompt, response] or in messages of which the last is the response."""
    found = []
    for path, one in fields.items():
        name = plain(path.rsplit(".", 1)[-1])
        if one.kind == "texts" and name in ("content", "contents", "messages", "conversation", "texts", "dialogue"):
            found.append(f"{path}.0")
        if one.kind == "messages" and name not in ("prompt", "completion", "response", "output", "input"):
            found.append(f"{path}.{BUT_LAST}")
    return found


def prompt_ids(fields: Fields) -> list[str]:
    """Return the paths of prompts' ids."""
    return [path for path in named_like(PROMPTS, IDS, fields) if is_prompt_id(path)]


def is_prompt_id(path: str) -> bool:
    """Return whether a name has a word of prompts and a word of ids, such as problem_id or qid."""
    own = set(last_words(path))
    return bool(own & PROMPTS) and bool(own & {*IDS, "qid"})


def group_ids(fields: Fields) -> list[str]:
    """Return the paths of ids of groups, which may be new at each step."""
    return named_like(GROUPS, {*IDS, "prompt", "rollout"}, fields)


def is_position(path: str) -> bool:
    """Return whether a name is that of a place in an order, which may begin anew."""
    found = set(last_words(path))
    return bool(found & POSITIONS) or bool(found & GROUPS)


class Witnesses(NamedTuple):
    """Columns that say which rows belong together, each surest first."""

    prompts: tuple[str, ...]
    texts: tuple[str, ...]
    responses: tuple[str, ...]
    groups: tuple[str, ...]
    trajectories: tuple[str, ...]
    turns: tuple[str, ...]
    advantages: tuple[str, ...]
    splits: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(dict.fromkeys(name for part in self for name in part))


def witnesses(fields: Fields, many: bool) -> Witnesses:
    """Return the columns that say which rows belong together; `many` where a row holds several responses."""
    short = {path: one for path, one in fields.items() if path != FILE}
    prompts = [*exact("prompt", short), *prompt_ids(short), *prompt_texts(short), *group_ids(short)]
    weak = [path for name in WEAK for path in short if plain(path) == name]
    texts = prompt_texts(short)
    at_top = [path for path in short if not short[path].lists]
    return Witnesses(
        tuple(dict.fromkeys((*prompts, *weak, *((ROW,) if many else ())))),
        tuple(dict.fromkeys([*exact("prompt", {path: short[path] for path in texts if path in short}), *texts]))[:2],
        tuple(exact("response", short)),
        tuple(group_ids(short)[:2]),
        tuple(named_like(TRAJECTORIES, IDS, short)[:2]),
        tuple(path for path in at_top if set(last_words(path)) & TURNS)[:1],
        tuple(path for path in at_top if plain(path) in ADVANTAGES and short[path].kind == "number")[:1],
        tuple(path for path in at_top if _may_split(path)),
    )


def _may_split(path: str) -> bool:
    own = set(words(path))
    return bool(own) and (own <= {*SPLITS, "data", "dataset"} or own <= {*EVALUATING, "is", "do"})


def is_evaluation(column: str, value: str) -> bool:
    """Return whether a value of a column says that a row is not of training."""
    if set(words(column)) & EVALUATING:
        return value.lower() in ("true", "1", "1.0")
    return bool(EVALUATION & set(words(value)))


def of_pieces(one: Field) -> bool:
    """Return whether a field lies in a list of the pieces of a response, such as its turns."""
    return any(PIECES & set(last_words(part)) for part in one.lists)


def found(fields: Fields, asked: Sequence[str]) -> str:
    """Say which columns there are; of many, those most like what was asked for."""
    top = list(fields)
    alone = top[0] if len(top) == 1 else ""
    hint = " (the columns of a CSV table must be separated by commas)" if ";" in alone or "\t" in alone else ""
    return f"found the column{'' if alone else 's'} {listed(top, asked)}{hint}{_meant(fields, asked)}"


def _meant(fields: Fields, asked: Sequence[str]) -> str:
    """Suggest the paths that end in a name that was asked for."""
    paths = [path for one in asked for path in fields if "." in path and plain(path).endswith(f".{plain(one)}")]
    return f"; did you mean {listed(paths)}?" if paths else ""


def known(path: str, fields: Fields) -> bool:
    """Return whether a path leads to something: a field, or a part of a list or a summary of one."""
    if path in fields or path == ROW:
        return True
    head, _, last = path.rpartition(".")
    return head in fields and (last.lstrip("-").isdigit() or last in ("sum", "mean", "min", "max", ":-1"))


def field_at(path: str, fields: Fields) -> Field:
    """Return the field of a path that may end in a part of a list."""
    if path in fields:
        return fields[path]
    one = fields.get(path.rpartition(".")[0], Field("other"))
    return Field("number", one.lists) if one.kind == "list" else Field(one.kind, one.lists[:-1])


def weighted_sum(weights: Mapping[str, float | str]) -> str:
    """Write a sum of columns out, as "right - 0.1 * length"; a weight that is a text is the name of its column."""
    parts = ""
    for name, weight in weights.items():
        size = weight if isinstance(weight, str) else f"{abs(weight):g}"
        parts += " - " if isinstance(weight, float) and weight < 0.0 else " + "
        parts += name if size == "1" else f"{size} * {name}"
    return f"-{parts[3:]}" if parts.startswith(" - ") else parts[3:]
