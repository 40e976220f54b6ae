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
    cut: dict[str, Tokens] = {}
    columns = []
    for name, texts in (("prompts", prompts), ("responses", responses)):
        if isinstance(texts, str | bytes) or not isinstance(texts, Sequence | np.ndarray) or getattr(texts, "ndim", 1) == 0:
            raise TypeError(f"{name} must be a list of texts, or of lists of token numbers, one per response, got {shown(texts)}")
        columns.append([_tokens(f"{name}[{number}]", text, tokenizer, vocabulary, cut) for number, text in enumerate(texts)])
    if len(columns[0]) != len(columns[1]) or not columns[0]:
        raise ValueError(f"prompts and responses must be as many, at least one, got {len(columns[0])} and {len(columns[1])}")
    return list(zip(*columns, strict=True))


def _tokens(name: str, text: Any, tokenizer: Any, vocabulary: int, cut: dict[str, Tokens]) -> Tokens:
    """Return the numbers of a text's tokens; raise unless they are at least one, and in the vocabulary."""
    if isinstance(text, str):
        if tokenizer is None:
            raise ValueError(f"tokenizer must be given where prompts or responses are texts, as {name} is, got {shown(text)}")
        if text not in cut:
            cut[text] = _tokens(name, tokenizer(text, add_special_tokens=False)["input_ids"], None, vocabulary, {})
        return cut[text]
    try:
        array = as_array(name, text)
    except (TypeError, ValueError):
        array = np.zeros(1)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= vocabulary:
        wanted = f"must be a text, or at least one token number from 0 to {vocabulary - 1}"
        raise ValueError(f"{name} {wanted}, got {'no token' if array.size == 0 else shown(text)}")
    return tuple(array.tolist())
