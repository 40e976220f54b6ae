"""SmolLM2's answers of about 80 tokens: what ships, that it is what it says, and what the study reads off it."""

import hashlib
import importlib
import re
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.evidence.verdicts import judge
from grpo_theory.harness.sides import claim_of, plain
from grpo_theory.harness.study import table_of
from simulations.length import language_model_answers as study

DATA = gt.data.long_rollouts()
ROOT = Path(__file__).resolve().parents[1]
LIMIT = 4.9
STEPS = {"up": 1, "down": -1, "by twos": 2}


def test_shapes_and_ranges():
    prompts, answers = len(DATA.prompts), len(DATA.texts)
    assert DATA.index.shape[0] == prompts == len(DATA.answers) == len(DATA.kinds)
    assert DATA.index.shape[1] % 16 == 0
    assert sorted(set(DATA.index.ravel().tolist())) == list(range(answers))
    assert DATA.rewards.shape == DATA.lengths.shape == DATA.squared_norms.shape == (answers,)
    assert DATA.sketches.shape == (answers, 1024)
    assert DATA.lengths[DATA.index].mean() >= 64
    assert DATA.lengths.max() <= 128
    assert 0.2 < DATA.rewards[DATA.index].mean() < 0.8


def test_the_right_answers_are_right_and_rewards_are_for_them():
    for kind, prompt, answer, row in zip(DATA.kinds, DATA.prompts, DATA.answers, DATA.index, strict=True):
        first, last = (int(number) for number in re.findall(r"\d+", prompt.rsplit("\n", 1)[-1]))
        step = list(STEPS.values())[kind]
        assert answer == ", ".join(str(number) for number in range(first, last + np.sign(step), step)) + ". Done"
        assert len(set(re.findall(r"From (\d+)", prompt))) == 3, "the examples begin elsewhere"
        for i in row:
            assert DATA.rewards[i] == (DATA.texts[i] == answer + "\n")


def test_each_prompts_answers_are_its_own_and_different():
    owners = [set(row.tolist()) for row in DATA.index]
    assert sum(len(owner) for owner in owners) == len(DATA.texts)


def test_sketches_have_the_squared_lengths_of_the_gradients():
    """A sketch of 1,024 numbers errs by a root mean square of at most sqrt(2/1,024); another answer's length does not fit."""
    own = (DATA.sketches**2).sum(axis=1)
    bound = np.sqrt(2.0 / 1024.0)
    for norms, agree in ((DATA.squared_norms, True), (np.roll(DATA.squared_norms, 1), False)):
        off = np.sqrt(((own / norms - 1.0) ** 2).mean())
        assert (off < 1.5 * bound) == agree, off


def test_scores_have_mean_zero_and_those_of_right_answers_alone_have_not():
    for right, agree in ((False, True), (True, False)):
        found = []
        for row in DATA.index:
            some = row[DATA.rewards[row] == 1.0] if right else row
            if len(some) > 1:
                products = DATA.sketches[some] @ DATA.sketches[some].T
                found.append((products.sum() - np.trace(products)) / np.trace(products))
        z = np.mean(found) / (np.std(found, ddof=1) / np.sqrt(len(found)))
        assert (abs(z) < LIMIT) == agree, z


def test_the_file_is_small_and_its_checksum_stated():
    path = ROOT / "grpo_theory" / "data" / "long_rollouts.npz"
    assert path.stat().st_size < 5_000_000
    assert hashlib.sha256(path.read_bytes()).hexdigest() == DATA.provenance["sha256"]
    for kind, name in enumerate(DATA.provenance["kinds"]):
        success = DATA.rewards[DATA.index[DATA.kinds == kind]].mean()
        assert DATA.provenance["success"][name] == pytest.approx(success, abs=1e-3)


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


def test_what_the_study_claims_follows_from_its_table_and_its_control_has_power(table):
    (case,) = study.shipped(False)
    (row,) = study.assumption.rows(case, lambda variant: {})
    assert (judge([claim_of(study.ASSUMPTION, row)])["control"] == "refuted").all()
    assert row["estimate"] == abs(float(table.query("quantity == 'correlation' and answers == @study.LONG")["estimate"].iloc[0]))


def test_a_step_with_the_responses_of_one_prompt_alone_loses_most(table):
    """The control of the losses: at 95% more than a tenth for each estimator, where groups of 8 of all prompts do not."""
    at = table[table["group_size"] == 8].set_index(["quantity", "estimator"])
    assert (at.loc["loss, one prompt alone", "low"] > 0.1).all()
    assert (at.loc["loss", "low"] < 0.1).all()


def test_rewards_dealt_anew_leave_no_gradient(table):
    at = table[table["quantity"] == "squared length of the gradient"].set_index("answers")
    z = at["estimate"] / at["standard_error"]
    assert abs(z[study.DEALT]) < LIMIT
    assert at.loc[study.LONG, "estimate"] > 3.0 * abs(at.loc[study.DEALT, "estimate"])


def test_the_best_size_loses_nothing_and_efficiencies_are_shares(table):
    losses = table[table["quantity"] == "loss"]
    assert losses.loc[losses["group_size"] == losses["best"], "estimate"].abs().max() < 1e-12
    shares = table.loc[table["quantity"] == "efficiency", "estimate"]
    assert shares.between(0.0, 1.0).all()


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


def test_the_page_says_what_the_table_has(table):
    said = " ".join((ROOT / "docs" / "long_responses.md").read_text(encoding="utf-8").split())
    rewards = DATA.rewards[DATA.index]
    assert f"have {DATA.lengths[DATA.index].mean():.0f} tokens on average and are right {rewards.mean():.0%} of the time" in said
    assert f"{len(DATA.prompts)} prompts with {DATA.index.shape[1]} answers each" in said
    best = gt.intervals.group_size_fieller(gt.Rollouts(rewards, DATA.sketches[DATA.index]))
    assert f"it is {best.estimate:.1f} ({best.low:.1f} to {best.high:.1f})" in said
    above = table[table["quantity"] == "best above it"].set_index(["estimator", "group_size"])[["estimate", "high"]] * 100.0
    eight, sixteen = (above.loc["rloo", size] for size in (8, 16))
    assert (
        f"gains {eight['estimate']:.1f}% over groups of 8 with the leave-one-out mean, and at most {eight['high']:.1f}%" in said
    )
    assert f"Over groups of 16 it gains {sixteen['estimate']:.1f}%, and at most {sixteen['high']:.1f}%" in said
    high = above["high"]
    for words, name in (
        ("8 and 16 lose at most", "trl_grpo"),
        ("as NeMo-RL does, they lose at most", "nemo_rl"),
        ("own length, too, they lose at most", "trl_grpo_loss"),
    ):
        assert f"{words} {high[name, 8]:.1f}% and {high[name, 16]:.1f}%" in said
    assert f"For MaxRL the limits are {high['max_rl', 8]:.0f}% and {high['max_rl', 16]:.0f}%" in said
    left = table.query("quantity == 'efficiency' and estimator == 'verl_grpo_passk' and group_size == 16")["estimate"].item()
    assert left < 0.05, "hardly any efficiency left"
    known = table[table["quantity"] == "correlation"].set_index("answers")
    long, short = known.loc[study.LONG], known.loc[study.SHORT]
    assert f"is {long['estimate']:.2f} ({long['low']:.2f} to {long['high']:.2f}), and {short['estimate']:.2f} for" in said
    assert f"{(DATA.lengths[DATA.index] == 128).mean():.0%} of the answers had not ended" in said
    assert (rewards.std(axis=1) == 0.0).sum() == 10


def test_the_script_draws_the_prompts_that_ship(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools" / "language_model")
    asked = importlib.import_module("make_long_rollouts").draw_prompts()[: len(DATA.prompts)]
    assert asked == list(zip(DATA.kinds.tolist(), DATA.prompts, DATA.answers, strict=True))
