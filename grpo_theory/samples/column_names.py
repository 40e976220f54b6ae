"""The names under which trainers log rollouts, and the choice of a log's columns by them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpo_theory.user_text import listed
from grpo_theory.validation import shown

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
    "reward": ("reward", "score"),
    "length": ("length", "completion_length", "response_length", "completion_tokens", "num_tokens"),
    "response": ("response_id", "completion_id", "request_id", "uid", "completion", "response", "output"),
    "step": ("step", "global_step", "training_step"),
    "scores": ("sketch", "sketches", "scores", "score_features"),
}
"""Names by what they mean; the first that a log has is taken, whether or not it has capitals or spaces around it.

TRL's log_completions writes step, prompt, completion, a column for each reward function, and advantage. verl's rollout_data_dir
writes input, output, gts, score, step, and request_id or (in the new trainer of 0.9) uid, which name one response. verifiers and
prime-rl write example_id, prompt, completion and reward. NeMo-RL's log has no prompt, and OpenRLHF's one response a step.
"""

TRL = {"step", "prompt", "completion", "advantage"}
"""What every table of TRL's has beside its reward functions, which have names of their own."""


@dataclass(frozen=True)
class Columns:
    """The columns of a log by what they mean; None where it has none.

    Attributes
    ----------
    prompt : str
    reward : dict of str to float
        The weights of the columns whose sum is the reward.
    length, response, step : str, optional
    scores : tuple of str
        One column of lists, or several of numbers; empty if there are none.
    ignored : tuple of str
        The log's other columns.
    """

    prompt: str
    reward: dict[str, float]
    length: str | None
    response: str | None
    step: str | None
    scores: tuple[str, ...]
    ignored: tuple[str, ...]

    @property
    def needed(self) -> list[str]:
        """All columns that are read."""
        one = (self.prompt, *self.reward, self.length, self.response, self.step, *self.scores)
        return list(dict.fromkeys(name for name in one if name is not None))


Reward = str | Sequence[str] | Mapping[str, float] | None


def choose(kinds: Mapping[str, str], reward: Reward, given: Mapping[str, str | None]) -> Columns:
    """Choose columns: those given by name, or recognised ones where None is given; an empty name is for none.

    Parameters
    ----------
    kinds : mapping of str to str
        The log's columns, and what they hold: "number", "text", "list" or "other".
    reward : str, sequence of str, mapping of str to float, or None
        A column, columns to be added up, or columns with their weights.
    given : mapping
        Names for prompt, length, response, step and scores.
    """
    for role, name in given.items():
        if name is not None and not isinstance(name, str):
            raise TypeError(f"{role} must be the name of a column, got an object of type {type(name).__name__}")
    weights = _reward(kinds, reward)
    prompt = _column("prompt", kinds, given["prompt"])
    if prompt is None:
        raise ValueError(f"prompt must name the column of the prompts' ids or texts; {_found(kinds, RECOGNISED['prompt'])}")
    others = {role: _column(role, kinds, given[role]) for role in ("length", "response", "step")}
    scores = _scores(kinds, given["scores"])
    used = {prompt, *weights, *(name for name in others.values() if name), *scores}
    return Columns(prompt, weights, **others, scores=scores, ignored=tuple(name for name in kinds if name not in used))


def _found(kinds: Mapping[str, str], asked: Sequence[str]) -> str:
    """Say which columns there are; of many, those most like what was asked for."""
    alone = next(iter(kinds)) if len(kinds) == 1 else ""
    hint = " (the columns of a CSV table must be separated by commas)" if ";" in alone or "\t" in alone else ""
    return f"found the column{'' if alone else 's'} {listed(kinds, asked)}{hint}"


def _column(role: str, kinds: Mapping[str, str], name: str | None) -> str | None:
    """Return the column given or recognised, if there is one."""
    if name is None:
        plain = {one.strip().lower(): one for one in reversed(list(kinds))}
        return next((plain[one] for one in RECOGNISED[role] if one in plain), None)
    if name and name not in kinds:
        raise ValueError(f"{role} must be a column of the log, got {shown(name)}; {_found(kinds, [name])}")
    return name or None


def _reward(kinds: Mapping[str, str], reward: Reward) -> dict[str, float]:
    if reward is None:
        name = _column("reward", kinds, None)
        if name is not None:
            return {name: 1.0}
        functions = [one for one, kind in kinds.items() if kind == "number" and one not in TRL] if set(kinds) >= TRL else []
        if len(functions) == 1:
            return {functions[0]: 1.0}
        if functions:
            raise ValueError(
                f"reward must name a column: {listed(functions)} may be reward functions of TRL, whose weights are not in its "
                f"log; choose one (reward={shown(functions[0])}), or give those to be added up, with weights where they are not 1"
            )
        raise ValueError(f"reward must name the column of the rewards; {_found(kinds, RECOGNISED['reward'])}")
    if isinstance(reward, str):
        weights = {reward: 1.0}
    elif isinstance(reward, Mapping):
        weights = dict(reward)
    elif isinstance(reward, Sequence) and all(isinstance(name, str) for name in reward):
        weights = dict.fromkeys(reward, 1.0)
    else:
        raise TypeError(
            f"reward must be a column, a list of columns or their weights, got an object of type {type(reward).__name__}"
        )
    missing = [name for name in weights if name not in kinds]
    if missing or not weights:
        raise ValueError(
            f"reward must name columns of the log, got {listed(map(repr, missing)) or 'none'}; {_found(kinds, missing)}"
        )
    bad = [w for w in weights.values() if isinstance(w, bool) or not isinstance(w, int | float) or not abs(w) < float("inf")]
    if bad:
        raise ValueError(f"reward must give each column a finite weight, got {bad[0]!r}")
    return {name: float(w) for name, w in weights.items()}


def _scores(kinds: Mapping[str, str], name: str | None) -> tuple[str, ...]:
    """Return the column of that name, or the columns with that name and a number behind it, in the order of the numbers."""
    if name is None:
        listed = next((one for one in RECOGNISED["scores"] if kinds.get(one) == "list"), None)
        return (listed,) if listed else ()
    if not name or name in kinds:
        return (name,) if name else ()
    numbered = {int(match[1]): one for one in kinds if (match := re.fullmatch(re.escape(name) + r"(0|[1-9]\d*)", one))}
    if not numbered:
        raise ValueError(
            "scores must be a column of lists, or what stands before the numbers of columns; "
            f"got {shown(name)}; {_found(kinds, [name])}"
        )
    return tuple(numbered[k] for k in sorted(numbered))
