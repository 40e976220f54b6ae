"""SmolLM2's sampled answers: what ships, that it is what it says, and that the example is a part of it."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.data import sampled_answers

DATA = sampled_answers()
ROOT = Path(__file__).resolve().parents[1]
LIMIT = 4.9


def test_shapes_and_ranges():
    answers = len(DATA.texts)
    assert DATA.index.shape == (len(DATA.prompts), 32) == (129, 32)
    assert sorted(set(DATA.index.ravel().tolist())) == list(range(answers))
    assert DATA.rewards.shape == DATA.lengths.shape == DATA.likelihoods.shape == (answers,)
    assert DATA.sketches.shape == (answers, 1024)
    assert len(DATA.head) == answers
    assert np.bincount(DATA.kinds).tolist() == [43] * 3
    assert DATA.lengths.min() >= 1
    assert DATA.lengths.max() == 6
    assert DATA.likelihoods.max() <= 0.0
    assert all(np.isfinite(array).all() for array in (DATA.sketches, DATA.head, DATA.likelihoods))


def test_the_right_answers_are_right_and_rewards_are_for_them():
    for kind, prompt, answer in zip(DATA.kinds, DATA.prompts, DATA.answers, strict=True):
        question = prompt.rsplit("\n", 1)[-1]
        numbers = [int(word) for word in question.replace("+", " ").replace("=", " ").replace(":", " ").split() if word.isdigit()]
        assert len(numbers) == 2
        assert int(answer) == (max(numbers) if DATA.kind_names[kind] == "larger" else sum(numbers))
        assert question not in prompt.rsplit("\n", 1)[0].split("\n"), "the question is not among its examples"
    for answer, row in zip(DATA.answers, DATA.index, strict=True):
        for i in row:
            assert DATA.rewards[i] == (DATA.texts[i] == answer + "\n")


def test_each_prompts_answers_are_its_own_and_different():
    owners = [set(row.tolist()) for row in DATA.index]
    assert sum(len(owner) for owner in owners) == len(DATA.texts)
    assert all(len({DATA.texts[i] for i in owner}) >= 1 for owner in owners)


def test_answers_come_as_often_as_their_probabilities_say():
    """Of answers that came first, how often do they come again?  Half as likely would be refused."""
    again, chances = [], []
    for row in DATA.index:
        again.append(np.mean(row[1:] == row[0]))
        chances.append(np.exp(DATA.likelihoods[row[0]]))
    for chance, agree in ((np.array(chances), True), (np.array(chances) / 2.0, False)):
        gap = np.array(again) - chance
        z = gap.mean() / (gap.std(ddof=1) / np.sqrt(len(gap)))
        assert (abs(z) < LIMIT) == agree, z


def test_probabilities_of_a_prompts_answers_add_up_to_at_most_one():
    for row in DATA.index:
        assert np.exp(DATA.likelihoods[np.unique(row)]).sum() <= 1.0 + 1e-4


def test_blocks_of_the_sketch_agree_as_far_as_their_width_says():
    """Squared norms by blocks of 256 numbers spread by at most sqrt(2/256) of their mean, and about that much."""
    blocks = 4.0 * (DATA.sketches.reshape(-1, 4, 256) ** 2).sum(axis=2)
    spread = blocks.std(axis=1, ddof=1) / blocks.mean(axis=1)
    bound = np.sqrt(2.0 / 256.0)
    assert np.sqrt((spread**2).mean()) < 1.1 * bound
    assert np.sqrt((spread**2).mean()) > 0.5 * bound, "blocks are copies of one another"


def test_the_head_is_a_part_of_the_whole():
    """Its squared norm is less than the whole one's, beyond what the sketch errs by."""
    whole, head = (DATA.sketches**2).sum(axis=1), (DATA.head**2).sum(axis=1)
    assert (head < 1.3 * whole).all()
    assert 0.1 < head.mean() / whole.mean() < 0.3


def test_the_file_is_small_and_its_checksum_stated():
    path = ROOT / "grpo_theory" / "data" / "rollouts.npz"
    assert path.stat().st_size < 5_000_000
    assert hashlib.sha256(path.read_bytes()).hexdigest() == DATA.provenance["sha256"]
    for kind, name in enumerate(DATA.kind_names):
        success = DATA.rewards[DATA.index[DATA.kinds == kind]].mean()
        assert DATA.provenance["success"][name] == pytest.approx(success, abs=1e-3)


def test_the_example_is_the_first_of_them():
    """Rewards as they are; norms as far as 64 numbers tell them."""
    path = ROOT / "examples" / "rollouts.jsonl"
    assert path.stat().st_size < 2_500_000
    log = gt.read_rollouts(path)
    prompts = log.rollouts.batch_size
    assert prompts == 66
    answers = DATA.index[:prompts]
    np.testing.assert_array_equal(log.rollouts.rewards.reshape(prompts, 32), DATA.rewards[answers])
    np.testing.assert_array_equal(np.asarray(log.lengths).reshape(prompts, 32), DATA.lengths[answers])
    scores = log.rollouts.known_scores
    ratio = (scores**2).sum() / (DATA.sketches[answers] ** 2).sum()
    assert ratio == pytest.approx(1.0, abs=LIMIT * np.sqrt(2.0 / 64.0) / np.sqrt(10.0))
    np.testing.assert_allclose(scores.reshape(prompts, 32, 64), 4.0 * DATA.sketches[answers][..., :64], rtol=2e-3, atol=2e-3)
    with path.open(encoding="utf-8") as file:
        first = json.loads(file.readline())
    assert first["prompt"] == DATA.prompts[0]
    assert first["completion"] == DATA.texts[DATA.index[0, 0]]


def test_the_example_says_what_the_whole_says_about_the_group_size():
    """G* from 64 numbers and 66 prompts has an interval that holds that from 1,024 and 129."""
    log = gt.read_rollouts(ROOT / "examples" / "rollouts.jsonl")
    found = gt.intervals.group_size_fieller(log.rollouts)
    whole = gt.intervals.estimate_group_size_law(gt.Rollouts(DATA.rewards[DATA.index], DATA.sketches[DATA.index]))
    assert found.low < whole.optimum < found.high
