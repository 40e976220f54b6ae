"""What a language model's sketches are of, and where they are kept: tokens of pairs, and a folder that survives interruptions."""

from functools import partial

import numpy as np
import pytest

from grpo_theory.language_model.shelf import Shelf
from grpo_theory.language_model.tokens import token_pairs

pairs_of = partial(token_pairs, tokenizer=None, vocabulary=32)


def test_numbers_in_any_kind_of_list_are_the_same_pairs():
    expected = [((1, 2), (3,)), ((1, 2), (4,))]
    for prompts in ([[1, 2], [1, 2]], ((1, 2), (1, 2)), np.array([[1, 2], [1, 2]]), [np.array([1, 2]), [np.int32(1), 2]]):
        assert pairs_of(prompts, [[3], [4]]) == expected


def test_a_text_is_cut_once_and_without_special_tokens():
    cut = []

    def tokenizer(text, add_special_tokens):
        assert not add_special_tokens
        cut.append(text)
        return {"input_ids": [ord(letter) - ord("a") for letter in text]}

    found = token_pairs(["ab", "ab", "c"], ["d", [4], "d"], tokenizer, 32)
    assert found == [((0, 1), (3,)), ((0, 1), (4,)), ((2,), (3,))]
    assert cut == ["ab", "c", "d"]


@pytest.mark.parametrize(
    ("prompts", "responses", "message"),
    [
        ([[1]], [], "prompts and responses must be as many, at least one, got 1 and 0"),
        ("text", [[1]], "prompts must be a list of texts, or of lists of token numbers, one per response, got 'text'"),
        (["text"], [[1]], "tokenizer must be given where prompts are texts, got 'text'"),
        ([[1], [2]], [[1], []], "responses must have at least one token each, and number 1 has none"),
        ([[1]], [[32]], "responses must be texts, or token numbers from 0 to 31, and number 0 is an object of type list"),
        ([[1.5]], [[3]], "prompts must be texts, or token numbers"),
    ],
)
def test_bad_pairs(prompts, responses, message):
    with pytest.raises((TypeError, ValueError), match=message):
        pairs_of(prompts, responses)


def test_what_is_put_on_the_shelf_is_there_for_the_same_settings(tmp_path):
    shelf, array = Shelf(tmp_path / "new", (1, "a")), np.arange(4.0)
    assert shelf.take("key", 4) is None
    shelf.put("key", array)
    np.testing.assert_array_equal(Shelf(tmp_path / "new", (1, "a")).take("key", 4), array)
    assert shelf.take("other", 4) is None
    assert Shelf(tmp_path / "new", (2, "a")).take("key", 4) is None
    assert [path.suffix for path in (tmp_path / "new").iterdir()] == [".npy"]


def test_a_damaged_file_and_an_array_of_another_width_or_that_is_not_finite_count_for_none(tmp_path):
    shelf = Shelf(tmp_path, 0)
    for content in (b"", b"\x93NUMPY", b"no array at all"):
        shelf.path("key").write_bytes(content)
        assert shelf.take("key", 4) is None
    shelf.put("wide", np.zeros(5))
    shelf.put("nan", np.full(4, np.nan))
    assert shelf.take("wide", 4) is None
    assert shelf.take("nan", 4) is None
