"""SmolLM2's answers of about 75 tokens: what ships, that it is what it says, and what the study reads off it."""

import hashlib
import re
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.evidence.verdicts import judge
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
        assert answer not in prompt
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
                np.mean(gt.advantages(z[None, list(some)], "trl_grpo").reshape(-1, 1) * (w * b[:, None])[list(some)], axis=0)
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
    (cell,) = study.cells(False)
    return table_of(study.rows(cell.settings, [study.simulate(cell.settings, np.random.SeedSequence(0), 0)]))


def test_what_the_study_claims_follows_from_its_table_and_its_controls_have_power(table):
    found = list(study.claims(table))
    assert len(found) == 1 + len(study.JUDGED)
    judged = judge(found)
    assert (judged["control"] == "refuted").all()


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
