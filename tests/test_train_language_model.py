"""What trains the language model's last block, against the model's code and dense gradients (marker `reference`: needs torch)."""

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_llama import small_llama

import grpo_theory as gt

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TOOLS = Path(__file__).resolve().parents[1] / "tools" / "language_model"
BEGINNINGS, ENDS = [[5, 6, 7, 8], [9, 2]], [[11, 3], [1, 2, 3], [4, 30]]
CATEGORIES, ANSWERS = [0, 1, 1], [3, 0, 9]


@pytest.fixture
def tools(monkeypatch):
    """Import the scripts."""
    monkeypatch.syspath_prepend(TOOLS)
    names = ("last_block", "score_products", "train_language_model", "language_model_arms")
    return {name: importlib.import_module(name) for name in names}


@pytest.fixture(scope="module")
def model():
    """Return a random model of two layers with the last block's shape."""
    return small_llama(0.2)


@pytest.fixture
def started(tools, model):
    """Return the prompts' states in front of the last block, the parameters behind, and the model's own logits of ten tokens."""
    shared, own, logits = {}, [], []
    with torch.no_grad():
        for category, end in zip(CATEGORIES, ENDS, strict=True):
            begun = BEGINNINGS[category]
            out = model(torch.tensor([begun + end]), output_hidden_states=True)
            shared[category] = out.hidden_states[-2][0, : len(begun)]
            own.append(out.hidden_states[-2][0, len(begun) :])
            logits.append(out.logits[0, -1, :10])
    asked = [(category, "", answer) for category, answer in zip(CATEGORIES, ANSWERS, strict=True)]
    prompts = tools["train_language_model"].pack(shared, own, asked)
    return prompts, tools["last_block"].read_parameters(model, list(range(10))), torch.stack(logits)


def test_the_last_block_is_the_models(tools, started):
    prompts, parameters, expected = started
    found, _ = tools["last_block"].forward(parameters, prompts)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    some, _ = tools["last_block"].forward(parameters, prompts.take(torch.tensor([2, 1])))
    torch.testing.assert_close(some, expected[[2, 1]], rtol=1e-4, atol=1e-4)
    moved = replace(prompts, own_lengths=prompts.own_lengths - 1)
    assert (tools["last_block"].forward(parameters, moved)[0] - expected).abs().max() > 1e-2, "a lost token would not show"


def test_products_of_scores_are_those_of_dense_gradients(tools, started):
    prompts, parameters, _ = started
    parameters = tools["train_language_model"].fresh(parameters)
    inner, probabilities = tools["score_products"].products(parameters, prompts)
    logits, _ = tools["last_block"].forward(parameters, prompts)
    rows = [torch.autograd.grad(one, list(parameters.values()), retain_graph=True) for one in logits.flatten()]
    total = 0.0
    for place, name in enumerate(parameters):
        dense = torch.stack([row[place].flatten() for row in rows]).double().numpy()
        expected = (dense @ dense.T).reshape(3, 10, 3, 10)
        np.testing.assert_allclose(inner[name], expected, atol=1e-4 * np.abs(expected).max())
        total = total + expected
    answers = np.array(ANSWERS)
    gram, powers = tools["score_products"].score_moments(total, probabilities, answers)
    success = logits.double().softmax(-1)[torch.arange(3), answers]
    slopes = [
        torch.cat([g.flatten() for g in torch.autograd.grad(one, list(parameters.values()), retain_graph=True)])
        for one in success
    ]
    gradients = torch.stack(slopes).double().numpy()
    np.testing.assert_allclose(gram, gradients @ gradients.T, atol=1e-4 * np.abs(gram).max())
    logs = logits.double().log_softmax(-1)
    lengths = np.zeros((3, 10))
    for m in range(3):
        for k in range(10):
            score = torch.autograd.grad(logs[m, k], list(parameters.values()), retain_graph=True)
            lengths[m, k] = sum(float(g.double().square().sum()) for g in score)
    right = np.eye(10)[answers].astype(bool)
    wrong = np.where(right, 0.0, probabilities)
    expected = np.stack([(wrong * lengths).sum(axis=1) / wrong.sum(axis=1), lengths[right]], axis=1)
    np.testing.assert_allclose(powers, expected, rtol=1e-3)
    assert not np.allclose(powers[:, ::-1], expected, rtol=1e-2), "rewards could not be told apart"


def test_plain_steps_add_the_gradient(tools, started):
    prompts, start, _ = started
    script = tools["train_language_model"]
    parameters, weights = script.fresh(start), torch.randn(3, 10, generator=torch.Generator().manual_seed(1))
    logits, seen = tools["last_block"].forward(parameters, prompts)
    expected = torch.autograd.grad((logits * weights).sum(), list(parameters.values()), retain_graph=True)
    rates = {name: 0.5 + place for place, name in enumerate(parameters)}
    script.climb(parameters, seen, logits, weights, rates)
    for (name, value), slope in zip(parameters.items(), expected, strict=True):
        change = (value.detach() - start[name]) / rates[name]
        torch.testing.assert_close(change, slope, rtol=1e-2, atol=2e-3 * float(slope.abs().max()))


@pytest.mark.parametrize("name", ["dr_grpo", "grpo"])
def test_advantages_are_those_of_the_package(tools, name):
    counts = np.zeros((4, 10), dtype=np.int64)
    counts[0, [3, 5]] = 1, 3
    counts[1, 3], counts[2, 4] = 4, 4
    counts[3, [3, 1, 2]] = 2, 1, 1
    found = tools["train_language_model"].advantages(counts, np.full(4, 3), name)
    problem = gt.Problem(gt.Bandit(np.eye(10)[[3]]), gt.TabularSoftmax(1, 10))
    law = importlib.import_module("simulations.runs.recorded_scores").advantages_by_count(name, 4)
    for row, right in enumerate((1, 4, 0, 2)):
        assert problem.bandit.mean_reward[0, 3] == 1.0
        if right:
            np.testing.assert_allclose(found[row, 3], law[1, right], atol=1e-12)
        if right < 4:
            np.testing.assert_allclose(found[row, 1], law[0, right], atol=1e-12)


@pytest.mark.parametrize("ratio", ["none", "unclipped", "by sign", "upper only"])
def test_updates_are_gradients_of_the_surrogate(tools, ratio):
    """Of sum A min(rho, ...)/N by automatic differentiation, in the logits."""
    rng = np.random.default_rng(3)
    logits, old = torch.tensor(rng.normal(size=(2, 10)), requires_grad=True), torch.tensor(rng.normal(size=(2, 10)))
    rows, counts = np.array([0, 1, 1]), rng.multinomial(8, np.full(10, 0.1), size=3)
    gains = tools["train_language_model"].advantages(counts, np.array([2, 5, 5]), "dr_grpo")
    sampled = old.log_softmax(-1).numpy()[rows]
    found, share = tools["train_language_model"].slopes((rows, counts, gains, sampled), logits.detach(), ratio)
    logs = logits.log_softmax(-1)[rows]
    ratios, gain = (logs - torch.tensor(sampled)).exp(), torch.tensor(gains)
    surrogate = {
        "none": logs * gain,
        "unclipped": ratios * gain,
        "by sign": torch.minimum(ratios * gain, ratios.clamp(0.8, 1.2) * gain),
        "upper only": torch.where(ratios > 1.2, 0.0, ratios * gain),
    }[ratio]
    (expected,) = torch.autograd.grad((torch.tensor(counts) * surrogate).sum() / counts.sum(), logits)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-6)
    assert (share > 0.0) == (ratio in ("by sign", "upper only"))


def test_a_killed_run_loses_one_arm_and_no_arm_is_made_twice(tools, tmp_path):
    kept, made = tools["train_language_model"].kept, []

    def make():
        made.append(1)
        return {"looks": np.ones(2)}

    def killed():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept(tmp_path, "arm", killed)
    assert not (tmp_path / "arm.npz").exists()
    assert [kept(tmp_path, "arm", make)[1] for _ in range(2)] == [False, True]
    assert len(made) == 1


def test_arms_have_names_and_draws_of_their_own(tools):
    arms = [arm for arms in tools["language_model_arms"].batches() for arm in arms]
    assert len({arm.name for arm in arms}) == len({tuple(arm.key) for arm in arms}) == len(arms)
