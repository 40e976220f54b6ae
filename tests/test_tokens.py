"""What a language model's sketches are of, and where they are kept: tokens of pairs, and a folder that survives interruptions."""

from functools import partial

import numpy as np

from grpo_theory.language_model.scores import Kept, token_pairs

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


def test_bad_pairs(check_refused):
    of = partial(partial, pairs_of)
    check_refused(
        (of([[1]], []), "prompts and responses must be as many, at least one, got 1 and 0"),
        (of("text", [[1]]), "prompts must be a list of texts, or of lists of token numbers, one per response, got 'text'"),
        (of(["text"], [[1]]), r"tokenizer must be given where prompts or responses are texts, as prompts\[0\] is, got 'text'"),
        (of([[1], [2]], [[1], []]), r"responses\[1\] must be a text, or at least one token number from 0 to 31, got no token"),
        (of([[1]], [[32]]), r"responses\[0\] must be a text, or at least one token number from 0 to 31, got .* of type list"),
        (of([[1.5]], [[3]]), "must be a text, or at least one token number"),
        (of(np.array(5), [[3]]), "prompts must be a list of texts"),
        error=(TypeError, ValueError),
    )


def test_what_is_kept_is_there_for_the_same_settings_and_damage_counts_for_none(tmp_path):
    kept, array = Kept(tmp_path / "new", (1, "a"), 4), np.arange(4.0)
    assert kept.take("key") is None
    kept.put("key", array)
    np.testing.assert_array_equal(Kept(tmp_path / "new", (1, "a"), 4).take("key"), array)
    assert [path.suffix for path in (tmp_path / "new").iterdir()] == [".npy"]
    for other, key in (
        (kept, "other"),
        (Kept(tmp_path / "new", (2, "a"), 4), "key"),
        (Kept(tmp_path / "new", (1, "a"), 5), "key"),
    ):
        assert other.take(key) is None
    kept.put("nan", np.full(4, np.nan))
    assert kept.take("nan") is None
    for content in (b"", b"\x93NUMPY", b"no array at all"):
        kept.path("key").write_bytes(content)
        assert kept.take("key") is None
    assert Kept(None, (1, "a"), 4).take("key") is None
