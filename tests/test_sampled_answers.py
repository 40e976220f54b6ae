"""SmolLM2's sampled answers: what ships, that it is what it says, and that the example is a part of it."""

import numpy as np

from grpo_theory.data import sampled_answers

DATA = sampled_answers()
LIMIT = 4.9


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


def test_blocks_of_the_sketch_agree_as_far_as_their_width_says():
    """Squared norms by blocks of 256 numbers spread by at most sqrt(2/256) of their mean, and about that much."""
    blocks = 4.0 * (DATA.sketches.reshape(-1, 4, 256) ** 2).sum(axis=2)
    spread = blocks.std(axis=1, ddof=1) / blocks.mean(axis=1)
    bound = np.sqrt(2.0 / 256.0)
    assert np.sqrt((spread**2).mean()) < 1.1 * bound
    assert np.sqrt((spread**2).mean()) > 0.5 * bound, "blocks are copies of one another"
