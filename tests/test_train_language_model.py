"""What trains the language model, against the model's code, dense gradients and torch's optimisers (needs torch)."""

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import grpo_theory as gt

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TOOLS = Path(__file__).resolve().parents[1] / "tools" / "language_model"
BEGUN, ENDS, ANSWERS = [[5, 6, 7, 8], [9, 2]], [[[11, 3], [4]], [[1, 2, 3], [4, 30]]], [3, 0, 9, 1]
TEXTS = [begun + end for begun, ends in zip(BEGUN, ENDS, strict=True) for end in ends]
BOTH = pytest.mark.parametrize("adapters", [False, True], ids=["last block", "adapters"])


@pytest.fixture
def tools(monkeypatch):
    """Import the scripts."""
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module("train_language_model")


@pytest.fixture(scope="module")
def model():
    """Return a language model of 32 tokens and two random layers, with the shape of the blocks of the one that is trained."""
    torch.manual_seed(0)
    shape = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 2, "num_attention_heads": 9, "vocab_size": 32}
    shape |= {"num_key_value_heads": 3, "rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e5}}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(initializer_range=0.05, **shape)).eval()


@pytest.fixture
def started(tools, model, adapters):
    """Return the blocks, questions, and what is trained of two runs, which have moved."""
    sets = {"trained": (ENDS, ANSWERS, list(range(4)))}
    blocks, prompts = tools.read_model(model, adapters, BEGUN, sets, list(range(10)))
    trained, generator = tools.fresh(blocks, adapters, [0, 1]), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, value in trained.items():
            if not name.endswith("down") or not adapters:
                value += 0.02 * torch.randn(value.shape, generator=generator)
    return blocks, tools.Questions(**prompts["trained"]), trained


def merged(model, trained, run, adapters):
    """Return a copy of the model that has the trained arrays of a run, or its adapters added."""
    copy = transformers.LlamaForCausalLM(model.config).eval()
    copy.load_state_dict(model.state_dict())
    with torch.no_grad():
        for row, layer in enumerate(copy.model.layers if adapters else copy.model.layers[-1:]):
            own = {name: getattr(layer.mlp, f"{name}_proj") for name in ("gate", "up", "down")}
            own |= {name: getattr(layer.self_attn, f"{name[0]}_proj") for name in ("query", "key", "value", "out")}
            for name, matrix in own.items():
                if adapters:
                    matrix.weight += 2.0 * trained[f"{name}, up"][row, run] @ trained[f"{name}, down"][row, run]
                else:
                    matrix.weight.copy_(trained[name][row, run])
        if not adapters:
            norms = layer.input_layernorm, layer.post_attention_layernorm, copy.model.norm
            for name, norm in zip(("norm", "second norm", "last norm"), norms, strict=True):
                norm.weight.copy_(trained[name][0, run, 0])
            copy.lm_head.weight[:10] = trained["head"][0, run]
    return copy


@BOTH
@pytest.mark.parametrize("run", [0, 1])
def test_a_run_is_the_model_with_its_arrays(tools, model, started, adapters, run):
    blocks, questions, trained = started
    found = tools.success(blocks, trained, questions)[1][run].detach()
    with torch.no_grad():
        expected, wrong = (
            torch.stack([merged(model, trained, each, adapters)(torch.tensor([text])).logits[0, -1, :10] for text in TEXTS])
            for each in (run, 1 - run)
        )
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert (found - wrong).abs().max() > 1e-2, "the other run's arrays would show"


@BOTH
def test_moments_of_scores_are_those_of_dense_gradients(tools, started, adapters):
    """By kind of array and in all; of success and of log-probabilities, by automatic differentiation."""
    blocks, questions, trained = started
    one = {name: value[:, :1].detach().requires_grad_(True) for name, value in trained.items()}
    inner, probabilities, _ = tools.products(blocks, one, questions)
    value, logits = (each[0] for each in tools.success(blocks, one, questions))

    def gradient(scalar):
        found = torch.autograd.grad(scalar, list(one.values()), retain_graph=True)
        return {name: each.double().flatten() for name, each in zip(one, found, strict=True)}

    first, second = gradient(logits[1, 4]), gradient(logits[2, 7])
    for kind, found in inner.items():
        own = [name for name in one if name.partition(",")[0] == kind]
        assert found[1, 4, 2, 7] == pytest.approx(sum(float(first[name] @ second[name]) for name in own), rel=1e-3)
    gram, powers = tools.score_moments(sum(inner.values()), probabilities, questions.answers)
    slopes = torch.stack([torch.cat(list(gradient(each).values())) for each in value]).numpy()
    np.testing.assert_allclose(gram, slopes @ slopes.T, atol=1e-4 * np.abs(gram).max())
    logs = logits.double().log_softmax(-1)
    lengths = np.array([[sum(float(g @ g) for g in gradient(each).values()) for each in row] for row in logs])
    right = np.eye(10)[questions.answers].astype(bool)
    wrong = np.where(right, 0.0, probabilities)
    expected = np.stack([(wrong * lengths).sum(axis=1) / wrong.sum(axis=1), lengths[right]], axis=1)
    np.testing.assert_allclose(powers, expected, rtol=1e-3)
    assert not np.allclose(powers[:, ::-1], expected, rtol=1e-2), "rewards could not be told apart"


@pytest.mark.parametrize("name", ["dr_grpo", "grpo"])
def test_advantages_are_those_of_the_package(tools, name):
    counts = np.zeros((3, 10), dtype=np.int64)
    counts[0, [3, 5]], counts[1, 3], counts[2, [3, 1, 2]] = (1, 3), 4, (2, 1, 1)
    found = tools.advantages(counts, np.full(3, 3), name)
    law = importlib.import_module("simulations.runs.recorded_scores").advantages_by_count(name, 4)
    np.testing.assert_allclose(found[:, 3], law[1, [1, 4, 2]], atol=1e-12)
    np.testing.assert_allclose(found[[0, 2], 1], law[0, [1, 2]], atol=1e-12)


@pytest.mark.parametrize("ratio", ["none", "unclipped", "by sign", "upper only"])
def test_updates_are_the_formula(tools, ratio):
    """Of A rho (e_a - pi)/N, summed over responses that are not dropped."""
    rng = np.random.default_rng(3)
    logits, old = torch.tensor(rng.normal(size=(2, 10)), requires_grad=True), torch.tensor(rng.normal(size=(2, 10)))
    rows, counts = np.array([0, 1, 1]), rng.multinomial(8, np.full(10, 0.1), size=3)
    gains, sampled = tools.advantages(counts, np.array([2, 5, 5]), "dr_grpo"), old.log_softmax(-1).numpy()[rows]
    found, share = tools.surrogate([torch.tensor(each) for each in (rows, counts, gains, sampled)], logits, ratio)
    logs = logits.detach().log_softmax(-1).numpy()[rows]
    ratios = np.ones(logs.shape) if ratio == "none" else np.exp(logs - sampled)
    kept = np.ones(logs.shape, dtype=bool)
    if ratio in ("by sign", "upper only"):
        kept = ratios <= 1.2
    if ratio == "by sign":
        kept = np.where(gains > 0, ratios <= 1.2, ratios >= 0.8)
    weights, expected = counts * gains * ratios * kept / counts.sum(), np.zeros((2, 10))
    np.add.at(expected, rows, weights - weights.sum(axis=1, keepdims=True) * np.exp(logs))
    np.testing.assert_allclose(torch.autograd.grad(found, logits)[0].numpy(), expected, atol=1e-9)
    assert (share > 0.0) == (ratio in ("by sign", "upper only"))


def test_answers_of_several_digits_have_the_models_law_and_runs_learn_them(tools, model, monkeypatch):
    long = importlib.import_module("train_long_answers")
    begun, rests, tokens = [1, 2, 3, 4], [[8, 9, 30], [10, 30], [4, 4, 4, 30]], [*range(11, 21), 30]
    blocks, prompts = long.read_model(model, begun, rests, [0] * 3, tokens)
    asked, trained = tools.Questions(**prompts), tools.fresh(blocks, False, [0, 1])
    found = long.answer_logs(blocks, trained, asked, np.array([[0, 1, 2], [2, 1, 1]])).detach()
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(2, 3, dtype=torch.float64))
    every = long.places_of(np.arange(1000))
    for run, place, number in ((0, 0, 0), (0, 2, 2), (1, 0, 2), (1, 1, 1)):
        for answer in (7, 47, 123, 90):
            text = [tokens[int(digit)] for digit in str(answer)] + tokens[10:] * (answer < 100)
            logs = model(torch.tensor([begun + rests[number] + text])).logits[0, -len(text) - 1 : -1, tokens].log_softmax(-1)
            expected = sum(logs[i, tokens.index(token)].item() for i, token in enumerate(text))
            assert found[run, place, every[answer]].item() == pytest.approx(expected, abs=1e-4)
    asked = replace(asked, answers=found[0, :, every].argmax(-1).numpy())
    monkeypatch.setattr(long, "TRAINED", 2)
    monkeypatch.setattr(long, "HELD_OUT", 1)
    records = long.train(blocks, asked, [long.Arm("dr_grpo", "Adam", 32, rate, 0) for rate in (0.0, 2e-3)], looks=(0, 16))
    assert records.shape == (2, 2, 4)
    np.testing.assert_array_equal(records[0, 0], records[0, 1])
    assert records[1, 1, 0] > 2.0 * records[1, 0, 0]


@pytest.mark.parametrize(("optimiser", "scale"), [("Adam", 1.0), ("SGD", 0.5)])
def test_steps_are_torchs_each_run_with_its_rate(tools, optimiser, scale):
    """Plain steps in balanced coordinates: the rate over the scale of the array's kind."""
    generator = torch.Generator().manual_seed(0)
    arms = [tools.planned.Arm("grpo", optimiser, 4, rate, 0) for rate in (3e-3, 1e-2)]
    start = torch.randn(2, 2, 3, 4, generator=generator)
    own = {"query, up": start.clone().requires_grad_(True)}
    step, theirs = tools.stepper(own, arms, {"query": 0.5}), [start[:, run].clone().requires_grad_(True) for run in range(2)]
    kind = getattr(torch.optim, optimiser)
    others = [kind([value], lr=arm.rate / scale, maximize=True) for value, arm in zip(theirs, arms, strict=True)]
    for power in range(4):
        gradient = 10.0**-power * torch.randn(start.shape, generator=generator)
        step([gradient])
        for run, (value, other) in enumerate(zip(theirs, others, strict=True)):
            value.grad = gradient[:, run].clone()
            other.step()
    torch.testing.assert_close(own["query, up"].detach(), torch.stack(theirs, 1).detach(), rtol=1e-6, atol=1e-6)


@BOTH
def test_a_run_does_not_depend_on_its_batch(tools, started, adapters):
    """Also not where another run of the batch leaves float32."""
    blocks, questions, _ = started
    model, arm = (blocks, questions, questions), tools.planned.Arm
    arms = [arm("grpo", "Adam", 4, 1e30, 0), arm("dr_grpo", "Adam", 64, 1e-3, 1)]
    arms += [arm("dr_grpo", "Adam", 8, 1e-2, 1, "by sign", 4)]
    together = tools.train(model, adapters, arms, {}, looks=(0, 1, 3))
    assert together[0]["looks"][-1].tolist() == [0.0] * 4
    for one, own in zip(together[1:], arms[1:], strict=True):
        other = tools.train(model, adapters, [own], {}, looks=(0, 1, 3))[0]
        np.testing.assert_allclose(one["looks"], other["looks"], atol=1e-5)
        assert one["looks"][-1, 0] != one["looks"][0, 0], "it was trained"


@BOTH
def test_an_ascent_raises_success_from_a_balanced_start(tools, started, adapters, monkeypatch):
    blocks, questions, _ = started
    monkeypatch.setattr(tools, "ASCENT_LOOKS", (0, 1, 4))
    start = tools.at_start((blocks, questions, questions), adapters)
    scales = dict(zip(start["names"].tolist(), start["scales"].tolist(), strict=True))
    found = tools.ascend((blocks, questions, questions), adapters, False, scales)
    assert (np.diff(found["success"].mean(axis=1)) > 0.0).all()
    assert np.trace(found["balanced gram"][0]) / len(ANSWERS) == pytest.approx(len(scales), rel=1e-4)


@pytest.mark.parametrize("adapters", [False])
def test_runs_are_kept_gathered_and_not_made_twice(tools, model, started, adapters, tmp_path, monkeypatch):
    """From the model's file to the records that the package reads."""
    blocks, questions, _ = started
    torch.save((blocks, dict.fromkeys(("trained", "held_out"), vars(questions))), tmp_path / "model.pt")
    batches = [[tools.planned.Arm("grpo", "SGD", 64, 0.1, 0)], [tools.planned.Arm("grpo", "Adam", 4, 2e-4, 0)]]
    monkeypatch.setattr(tools.planned, "last_block_batches", lambda: batches)
    monkeypatch.setattr(tools.planned, "LOOKS", (0, 1))
    monkeypatch.setattr(tools.planned, "MEASURED_LOOKS", (1,))
    monkeypatch.setattr(tools, "ASCENT_LOOKS", (0, 1))
    tools.work_on(tmp_path, False, "cpu", 1e9)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(times) == 6
    tools.work_on(tmp_path, False, "cpu", 1e9)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times
    arrays = tools.gather(tmp_path, False)
    assert arrays["course_names"].tolist() == ["plain", "divided", "grpo, G = 4"]
    shipped = np.load(Path(gt.data.__file__).parent / "trained_model.npz")
    assert {name: array.dtype.kind for name, array in arrays.items()} == {name: shipped[name].dtype.kind for name in shipped}
    with pytest.raises(KeyboardInterrupt):
        tools.kept(tmp_path, "killed", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    assert not (tmp_path / "killed.npz").exists()


def test_the_pilot_chooses_the_rates_and_runs_have_names_and_draws_of_their_own(tools):
    runs = tools.planned
    ends = [1.0 if arm.rate == (8e-4 if arm.group_size == 4 else 4e-4) else 0.5 for arm in runs.pilot()]
    rates = runs.rates_of(ends)
    assert rates == pytest.approx((2e-4, 4e-4, 8e-4, 1.6e-3))
    for batches in (runs.last_block_batches(), runs.adapter_batches(rates) + runs.longer_batches(rates)):
        arms = [arm for arms in batches for arm in arms]
        assert len({arm.name for arm in arms}) == len({tuple(arm.key) for arm in arms}) == len(arms)
        assert runs.PILOT_SEED not in {arm.seed for arm in arms}


@pytest.mark.parametrize("name", ["model", "adapters"])
def test_the_shipped_runs_are_those_that_are_listed(tools, name):
    shipped = gt.data.trained_model("adapters" if name == "adapters" else "last block")
    runs, rates = tools.planned, shipped.provenance.get("rates")
    batches = runs.adapter_batches(rates) if rates else runs.last_block_batches()
    listed = {(a.estimator, a.optimiser, a.group_size, f"{a.rate:g}", a.ratio, a.reuse, a.seed) for arms in batches for a in arms}
    made = {(*run.arm[:3], f"{run.arm[3]:g}", *run.arm[4:], run.seed) for run in shipped.runs}
    assert made <= listed
