"""SmolLM2's answers of about 80 tokens: what ships, that it is what it says, and what the study reads off it."""

import re
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.harness.study import plain, table_of
from simulations.length import language_model_answers as study

DATA = gt.data.long_rollouts()
STEPS = {"up": 1, "down": -1, "by twos": 2}


def test_the_right_answers_are_right_and_rewards_are_for_them():
    for kind, prompt, answer, row in zip(DATA.kinds, DATA.prompts, DATA.answers, DATA.index, strict=True):
        first, last = (int(number) for number in re.findall(r"\d+", prompt.rsplit("\n", 1)[-1]))
        step = list(STEPS.values())[kind]
        assert answer == ", ".join(str(number) for number in range(first, last + np.sign(step), step)) + ". Done"
        assert len(set(re.findall(r"From (\d+)", prompt))) == 3, "the examples begin elsewhere"
        for i in row:
            assert DATA.rewards[i] == (DATA.texts[i] == answer + "\n")


def test_sketches_have_the_squared_lengths_of_the_gradients():
    """A sketch of 1,024 numbers errs by a root mean square of at most sqrt(2/1,024); another answer's length does not fit."""
    own = (DATA.sketches**2).sum(axis=1)
    bound = np.sqrt(2.0 / 1024.0)
    for norms, agree in ((DATA.squared_norms, True), (np.roll(DATA.squared_norms, 1), False)):
        off = np.sqrt(((own / norms - 1.0) ** 2).mean())
        assert (off < 1.5 * bound) == agree, off


@pytest.mark.parametrize("name", ["trl_grpo", "trl_grpo_loss"])
def test_laws_are_means_over_all_subgroups(name):
    """Of 4 prompts with 5 responses: g . E ghat and E ||ghat||^2, with advantages as a trainer has them, over lengths or not."""

    def divided(z):
        return (z - z.mean()) / (z.std(ddof=1) + 1e-4)

    rng = np.random.default_rng(3)
    rewards, scores = (rng.random((4, 5)) < 0.5).astype(float), rng.normal(size=(4, 5, 3))
    lengths = rng.integers(1, 9, 20).astype(float)
    data = SimpleNamespace(lengths=lengths, index=np.arange(20).reshape(4, 5))
    law = study.laws(name, data, rewards, scores)
    place = law.group_sizes.tolist().index(3)
    by = 1.0 / lengths[data.index] if name == study.OWN_LENGTH else np.ones((4, 5))
    estimates = np.array(
        [
            [
                np.mean(divided(z[list(some)])[:, None] * (w * b[:, None])[list(some)], axis=0)
                for some in combinations(range(5), 3)
            ]
            for z, w, b in zip(rewards, scores, by, strict=True)
        ]
    )
    assert law.power.values[place] == pytest.approx((estimates**2).sum(axis=-1).mean(), rel=1e-9)
    # The gradient of a prompt: the mean of leave-one-out advantages times scores.
    own = ((rewards - rewards.mean(axis=1, keepdims=True))[..., None] * scores).sum(axis=1) / 4.0
    products = own @ estimates.mean(axis=1).T
    assert law.along.values[place] == pytest.approx((products.sum() - np.trace(products)) / 12.0, rel=1e-9)


@pytest.fixture(scope="module")
def table():
    (case,) = study.shipped(False)
    return table_of(plain(study.answers.rows(case, lambda variant: {"rng": np.random.default_rng(0)})))


def test_losses_of_the_leave_one_out_mean_are_those_of_its_constants(table):
    """E||ghat||^2 of B groups is ||g||^2 + (c1 + c2/G + c3/(G(G-1)))/B, by constants from another function."""
    rewards, scores = DATA.rewards[DATA.index], DATA.sketches[DATA.index]
    constants = gt.intervals.estimate_group_size_law(gt.Rollouts(rewards, scores))
    at = table[(table["estimator"] == "rloo") & (table["quantity"] == "loss")].set_index("group_size")
    sizes = at.index.to_numpy(dtype=float)
    square = float(study.laws("rloo", DATA, rewards, scores).mean_square.likely[0])
    batch = 1024 // sizes
    # The package's own estimate of ||g||^2 is kept from below 0, and is the only thing taken from it.
    power = constants.c1 + study.laws("rloo", DATA, rewards, scores).square.values
    power = power + constants.c2 / sizes + constants.c3 / (sizes * (sizes - 1.0))
    second = power / batch + (1.0 - 1.0 / batch) * square
    best = second[sizes == float(at["best"].iloc[0])]
    np.testing.assert_allclose(at["estimate"], 1.0 - best / second, atol=1e-9)


def test_correlations_are_those_of_what_is_left_without_each_prompts_means(table):
    """Of all responses together, and its error given the prompts by leaving out each response."""
    norms, rewards = DATA.squared_norms[DATA.index], DATA.rewards[DATA.index]

    def pooled(rows):
        weights = [1.0 / (len(z) - 1.0) for _, z in rows]
        left = [(p - p.mean(), z - z.mean()) for p, z in rows]
        both, power, spread = (
            sum(w * float((x[i] * x[j]).sum()) for w, x in zip(weights, left, strict=True)) for i, j in ((0, 1), (0, 0), (1, 1))
        )
        return both / np.sqrt(power * spread)

    rows = list(zip(norms, rewards, strict=True))
    at = table[table["answers"] == study.LONG].set_index("quantity").loc["correlation"]
    assert at["estimate"] == pytest.approx(pooled(rows), rel=1e-10)
    size = norms.shape[1]
    variance = 0.0
    for b, (p, z) in enumerate(rows):
        without = [pooled([*rows[:b], (np.delete(p, i), np.delete(z, i)), *rows[b + 1 :]]) for i in range(size)]
        variance += (size - 1.0) * np.var(without)
    assert at["response_error"] == pytest.approx(np.sqrt(variance), rel=1e-9)
