"""The choice of a log's columns by their names, and of its rewards by what stands beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpo_theory.samples import column_names as names
from grpo_theory.samples.column_names import RECOGNISED, TRL, Fields, last_words, of_pieces, plain
from grpo_theory.samples.log_folder import words
from grpo_theory.samples.nested_rows import ROW, Field
from grpo_theory.user_text import listed
from grpo_theory.validation import shown

Reward = str | Sequence[str] | Mapping[str, float] | None


@dataclass(frozen=True)
class Counted:
    """Rows that stand for several responses: a column of successes, or of their share, and how many responses there are."""

    successes: str
    total: str | int
    rate: bool


@dataclass(frozen=True)
class Columns:
    """The columns of a log by what they mean, as paths; None where it has none.

    Attributes
    ----------
    prompt : tuple of str
        Together they are the prompt's id.
    reward : dict of str to float or str
        The weights of the columns whose sum is the reward; a text is the path of the column with the weight.
    counted : Counted or None
        Where a row is a prompt with numbers of successes.
    length, response, step, trajectory : str, optional
    scores : tuple of str
        One column of lists, or several of numbers; empty if there are none.
    ignored : tuple of str
        The log's other columns.
    """

    prompt: tuple[str, ...]
    reward: dict[str, float | str]
    counted: Counted | None
    length: str | None
    response: str | None
    step: str | None
    trajectory: str | None
    scores: tuple[str, ...]
    ignored: tuple[str, ...]

    @property
    def needed(self) -> list[str]:
        """All columns that are read."""
        weights = [one for one in self.reward.values() if isinstance(one, str)]
        counted = [] if self.counted is None else [self.counted.successes, self.counted.total]
        one = (*self.prompt, *self.reward, *weights, *counted, self.length, self.response, self.step, self.trajectory)
        return list(dict.fromkeys(name for name in (*one, *self.scores) if isinstance(name, str)))


@dataclass(frozen=True)
class Rewards:
    """Where the rewards are: the weights of paths, or counts; and the lists of objects that part a row into responses."""

    weights: dict[str, float | str]
    counted: Counted | None = None
    lists: tuple[str, ...] = ()

    @property
    def first(self) -> str:
        """The path that parts the rows."""
        return next(iter(self.weights)) if self.counted is None else self.counted.successes


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


def column(role: str, fields: Fields, name: str | None) -> str | None:
    """Return the column given or recognised by an exact name, if there is one."""
    if name is None:
        return next(iter(names.exact(role, fields)), None)
    if name and not known(name, fields):
        raise ValueError(f"{role} must be a column of the log, got {shown(name)}; {found(fields, [name])}")
    return name or None


def choose_rewards(fields: Fields, reward: Reward) -> Rewards:
    """Return where the rewards are: as given, or as recognised where None is given."""
    if reward is None:
        return _recognised(fields)
    if isinstance(reward, str):
        counted = _counted_by_name(fields, reward)
        if counted is not None:
            return Rewards({}, counted)
        weights: dict[str, float] = {reward: 1.0}
    elif isinstance(reward, Mapping):
        weights = dict(reward)
    elif isinstance(reward, Sequence) and all(isinstance(name, str) for name in reward):
        if len(reward) == 1:
            return choose_rewards(fields, reward[0])
        weights = dict.fromkeys(reward, 1.0)
    else:
        raise TypeError(
            f"reward must be a column, a list of columns or their weights, got an object of type {type(reward).__name__}"
        )
    missing = [name for name in weights if not known(name, fields)]
    if missing or not weights:
        raise ValueError(
            f"reward must name columns of the log, got {listed(map(repr, missing)) or 'none'}; {found(fields, missing)}"
        )
    bad = [w for w in weights.values() if isinstance(w, bool) or not isinstance(w, int | float) or not abs(w) < float("inf")]
    if bad:
        raise ValueError(f"reward must give each column a finite weight, got {bad[0]!r}")
    return Rewards({name: float(w) for name, w in weights.items()}, None, field_at(next(iter(weights)), fields).lists)


def _counted_by_name(fields: Fields, reward: str) -> Counted | None:
    """Return what successes/total and rate@total ask for."""
    for sign in "/@":
        part, _, total = reward.rpartition(sign)
        if part and reward not in fields and part in fields and (total in fields or total.isdigit()):
            return Counted(part, int(total) if total not in fields else total, sign == "@")
    return None


def _recognised(fields: Fields) -> Rewards:
    for name in names.exact("reward", fields):
        if fields[name].kind != "other":
            return Rewards({name: 1.0})
        inside = _inside(name, fields)
        if inside:
            return inside
    counted = _counted(fields)
    if counted is not None:
        return Rewards({}, counted)
    if {plain(name) for name in fields} >= TRL and any(plain(name) in names.ADVANTAGES for name in fields):
        return _of_trl(fields)
    weighted = _weighted(fields)
    if weighted:
        return Rewards(dict(weighted), None, fields[next(iter(weighted))].lists)
    for path in sorted({path.rpartition(".")[0] for path in fields if "." in path}, key=lambda path: path.count(".")):
        within_it = _inside(path, fields) if plain(path.rpartition(".")[2]) in ("reward", "rewards") else None
        if within_it and not any(of_pieces(fields[one]) for one in within_it.weights):
            return within_it
    likely = _likely(fields)
    if len(likely) == 1:
        return Rewards({likely[0]: 1.0}, None, fields[likely[0]].lists)
    if likely:
        sums = [path for path in fields if set(last_words(path)) <= names.SUMS and fields[path].kind == "number"]
        raise ValueError(
            f"reward must name a column: {listed([*likely, *sums])} may be rewards; choose one (reward={shown(likely[0])}, or "
            f"--reward {likely[0]}), or give those to be added up, with weights where they are not 1 "
            f"(--reward {likely[0]}=1 --reward {likely[1]}=0.5)"
        )
    pieces = [path for path in fields if fields[path].lists and {"reward", "rewards"} & set(last_words(path))]
    hint = f"; {pieces[0]} is of the pieces of a response: {pieces[0]}.sum adds them up" if pieces else ""
    solved = [path for path in fields if set(last_words(path)) & names.SUCCESSES and set(last_words(path)) & names.COUNTS]
    rates = [path for path in fields if set(last_words(path)) & names.RATES and set(last_words(path)) & names.RATED]
    hint = f"; {rates[0]}@N is a share of N responses, a number or a column" if rates and not hint else hint
    hint = f"; {solved[0]}/N is a number of successes of N, a number or a column" if solved and not hint else hint
    raise ValueError(f"reward must name the column of the rewards; {found(fields, RECOGNISED['reward'])}{hint}")


def _inside(name: str, fields: Fields) -> Rewards | None:
    """Return the rewards within an object or a list of objects: its total, or scores with their weights, or its only number."""
    inside = {path: one for path, one in fields.items() if path.startswith(f"{name}.")}
    weights = _weighted(inside)
    if weights:
        return Rewards(dict(weights), None, fields[next(iter(weights))].lists)
    numbers = [path for path, one in inside.items() if one.kind in ("number", "list")]
    totals = [path for path in numbers if set(last_words(path)) & {"total", "overall", "final", "sum"}]
    one = totals[:1] or (numbers if len(numbers) == 1 else [])
    return Rewards({one[0]: 1.0}, None, fields[one[0]].lists) if one else None


def _weighted(fields: Fields) -> dict[str, str]:
    """Return scores with a weight beside each, at the least depth: rewards whose sum counts."""
    pairs = {
        path: f"{path.rpartition('.')[0]}.weight"
        for path, one in fields.items()
        if plain(path).endswith((".score", ".value", ".reward")) and not of_pieces(one)
    }
    pairs = {path: weight for path, weight in pairs.items() if weight in fields}
    least = min((len(fields[path].lists) for path in pairs), default=0)
    return {path: weight for path, weight in pairs.items() if len(fields[path].lists) == least}


def _counted(fields: Fields) -> Counted | None:
    """Return columns of successes, or their share, beside the number of responses."""
    at = {plain(path): path for path in fields if fields[path].kind == "number" and "." not in path}
    total = next((at[name] for name in names.TOTALS if name in at), None) or next(
        (path for path in at.values() if _only_counts(path)), None
    )
    if total is None:
        return None
    for path in at.values():
        own = set(last_words(path))
        if path != total and own & names.SUCCESSES and own & names.COUNTS:
            return Counted(path, total, rate=False)
    rates = [path for path in at.values() if set(last_words(path)) & names.RATES and set(last_words(path)) & names.RATED]
    return Counted(rates[0], total, rate=True) if rates else None


def _only_counts(path: str) -> bool:
    """Return whether a name is of a number of responses, and of nothing else."""
    own = set(last_words(path))
    return own <= names.TOTAL_WORDS | names.COUNTS and bool(own & {*names.TOTAL_WORDS, "total"})


def _of_trl(fields: Fields) -> Rewards:
    """Return the only reward function of a table of TRL's; raise ValueError if it may be any of several."""
    beside = {*TRL, *names.ADVANTAGES}
    functions = [path for path, one in fields.items() if one.kind in ("number", "list") and plain(path) not in beside]
    functions = [path for path in functions if "." not in path] or functions
    sure = [path for path in functions if not _no_reward(path)] if len(functions) > 1 else functions
    if len(sure) == 1:
        return Rewards({sure[0]: 1.0})
    if functions:
        which = sure or functions
        raise ValueError(
            f"reward must name a column: {listed(which)} may be reward functions of TRL, whose weights are not in its "
            f"log; choose one (reward={shown(which[0])}), or give those to be added up, with weights where they are not 1 "
            f"(--reward {which[0]}=1 --reward {which[-1]}=0.5)"
        )
    raise ValueError(f"reward must name the column of the rewards; {found(fields, RECOGNISED['reward'])}")


def _no_reward(path: str) -> bool:
    own = set(last_words(path))
    return bool(own & names.NO_REWARD) and "reward" not in own


def _likely(fields: Fields) -> list[str]:
    """Return the paths of the surest word for a reward, at the least depth: of responses, not of their pieces."""
    paths = [
        path for path, one in fields.items() if one.kind in ("number", "list") and not _no_reward(path) and not of_pieces(one)
    ]
    for word in names.REWARDING:
        like = [path for path in paths if word in last_words(path)]
        if like:
            depth = min((len(fields[path].lists), path.count(".")) for path in like)
            return [path for path in like if (len(fields[path].lists), path.count(".")) == depth]
    parents = {path.rpartition(".")[0] for path in paths if "." in path}
    return [path for path in paths if path.rpartition(".")[0] in parents and {"reward", "rewards"} & set(_parent_words(path))]


def _parent_words(path: str) -> list[str]:
    return words(path.rpartition(".")[0].rsplit(".", 1)[-1])


def within(fields: Fields, rewards: Rewards) -> dict[str, Field]:
    """Return the fields that a response has: those that go through no list of objects that the reward does not."""
    return {path: one for path, one in fields.items() if one.lists == rewards.lists[: len(one.lists)]}
