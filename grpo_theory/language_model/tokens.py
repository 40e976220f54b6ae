"""Prompts and responses as the numbers of their tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from grpo_theory.validation import as_array, shown

Text = str | Sequence[int]
"""A text, or its tokens' numbers."""
Tokens = tuple[int, ...]
Pair = tuple[Tokens, Tokens]
"""A prompt and a response to it."""


def token_pairs(prompts: Sequence[Text], responses: Sequence[Text], tokenizer: Any, vocabulary: int) -> list[Pair]:
    """Return each prompt with its response; a text is cut once however often it comes.

    Raises
    ------
    TypeError, ValueError
        If there are not as many, or one is neither a text nor at least one number of a token below `vocabulary`.
    """
    if tokenizer is not None and not callable(tokenizer):
        raise TypeError(f"tokenizer must be one of transformers' tokenizers, got {shown(tokenizer)}")
    listed = {name: _listed(name, texts) for name, texts in (("prompts", prompts), ("responses", responses))}
    sizes = [len(texts) for texts in listed.values()]
    if sizes[0] != sizes[1] or sizes[0] == 0:
        raise ValueError(f"prompts and responses must be as many, at least one, got {sizes[0]} and {sizes[1]}")
    cut: dict[str, Tokens] = {}
    columns = []
    for name, texts in listed.items():
        columns.append([_tokens(name, number, text, tokenizer, vocabulary, cut) for number, text in enumerate(texts)])
    return list(zip(*columns, strict=True))


def _listed(name: str, texts: Any) -> list[Any]:
    listable = isinstance(texts, Sequence) if not isinstance(texts, np.ndarray) else texts.ndim > 0
    if isinstance(texts, str | bytes) or not listable:
        raise TypeError(f"{name} must be a list of texts, or of lists of token numbers, one per response, got {shown(texts)}")
    return list(texts)


def _tokens(name: str, number: int, text: Any, tokenizer: Any, vocabulary: int, cut: dict[str, Tokens]) -> Tokens:
    if isinstance(text, str):
        if tokenizer is None:
            raise ValueError(f"tokenizer must be given where {name} are texts, got {shown(text)}")
        if text not in cut:
            cut[text] = _numbers(name, number, tokenizer(text, add_special_tokens=False)["input_ids"], vocabulary)
        return cut[text]
    return _numbers(name, number, text, vocabulary)


def _numbers(name: str, number: int, tokens: Any, vocabulary: int) -> Tokens:
    """Return the numbers of tokens; raise unless they are at least one, and in the vocabulary."""
    try:
        array = as_array(name, tokens)
    except (TypeError, ValueError):
        array = np.empty(0, dtype=object)
    if array.size == 0 and array.dtype != object:
        raise ValueError(f"{name} must have at least one token each, and number {number} has none")
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= vocabulary:
        raise ValueError(
            f"{name} must be texts, or token numbers from 0 to {vocabulary - 1}, and number {number} is {shown(tokens)}"
        )
    return tuple(array.tolist())
