"""The stages and drivers of the simulators: compiled and as plain Python, and against dense arithmetic."""

import numba
import numpy as np
import pytest
from compiled_stages import compiled
from dense import TREES, Dense, token_case
from doubled_maps import Doubled
from enumeration import POLICIES, case
from numba.core.dispatcher import Dispatcher

import grpo_theory as gt
from grpo_theory.compiler import FunctionValue, first_class_value
from grpo_theory.compiler.lanes import PICKED, WIDTH, load, store
from grpo_theory.estimation.kernel import SIGNATURE
from grpo_theory.estimation.parts import CLIPS, KL_TERMS, RATIOS
from grpo_theory.exact import score_moments
from grpo_theory.problem.logit_map import FeatureMap, HeadMap, TabularMap
from grpo_theory.simulate.advantage import kernel_call
from grpo_theory.simulate.covector import features
from grpo_theory.simulate.draw import prompt_tables
from grpo_theory.simulate.draw.prompt_tables import FEW, lookup
from grpo_theory.simulate.draw.responses import draw_responses, invert, tabulate
from grpo_theory.simulate.update import ascent

MODULES = (prompt_tables, kernel_call, score_moments)
CASES = (*POLICIES, *TREES)
MAPS = {"tabular": TabularMap, "dense": FeatureMap, "head": HeadMap}


# ---- every stage, compiled and as plain Python on the same arrays


def stages():
    """Return all stages by name: those that are compiled into their drivers, and those that drivers take as values."""
    found = {}
    for module in MODULES:
        for name, value in vars(module).items():
            if isinstance(value, Dispatcher | FunctionValue):
                found[name] = value
    return found


def twins(stage, *arguments):
    """Run a stage compiled and as plain Python on copies of the arguments; return what both have made of them.

    A `FunctionValue` and an `Advantage` among the arguments are given to each in its own form.
    """

    def given(argument, is_compiled):
        if isinstance(argument, FunctionValue):
            return argument.value if is_compiled else argument.function
        if isinstance(argument, gt.Estimator):
            kernel = argument.advantage
            return first_class_value(kernel.kernel, SIGNATURE) if is_compiled else kernel.function
        if isinstance(argument, tuple):
            return type(argument)._make(given(part, is_compiled) for part in argument)
        return argument.copy() if isinstance(argument, np.ndarray) else argument

    by_value = isinstance(stage, FunctionValue)
    machine, plain = (stage, stage.function) if by_value else (compiled(stage), stage.py_func)
    results = []
    for function, is_compiled in ((machine, True), (plain, False)):
        copies = [given(argument, is_compiled) for argument in arguments]
        results.append((function(*copies), *copies))
    same(*results)
    return results[0]


def same(one, other):
    """Compare arrays and numbers, within tuples too, to rounding; integers to the bit."""
    if isinstance(one, tuple):
        for parts in zip(one, other, strict=True):
            same(*parts)
    elif isinstance(one, np.ndarray) and one.dtype == np.int64:
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, np.ndarray | float):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-14)


class Arrays:
    """Arrays as a step on a tree has them: B groups of G responses of each of R runs, and what they know of it."""

    def __init__(self, policy="linear tree", runs=3, batch_size=4, group_size=3):
        self.dense = Dense(token_case(policy, "kl"))
        self.problem = self.dense.problem
        self.paths = self.problem.policy.paths
        self.rng = np.random.default_rng(0)
        self.runs, self.n, self.g = runs, runs * batch_size, group_size
        self.o = self.problem.bandit.values.size * self.paths.n_responses
        self.k, self.d, self.m = self.paths.n_responses, self.paths.n_logits, self.problem.policy.n_prompts
        self.prompts = self.integers(self.m, self.n)
        self.outcomes = self.integers(self.o, self.g, self.n)
        self.places = np.arange(self.n) % runs * batch_size + np.arange(self.n) // runs
        self.point = self.problem.at(self.problem.theta)
        self.tokens = np.ascontiguousarray(self.point.token_probabilities[self.prompts].T)

    def integers(self, below, *shape):
        return self.rng.integers(below, size=shape)

    def numbers(self, *shape):
        return self.rng.normal(size=shape)

    def uniforms(self, *shape):
        return self.rng.random(shape)


def try_choose_prompts(stage):
    drawn = np.random.default_rng(3).integers(0, 1 << 63, 3 * WIDTH, dtype=np.uint64) * np.uint64(2)
    for law in (np.array([0.2, 0.5, 0.3]), *(np.random.default_rng(4).dirichlet(np.ones(n)) for n in (FEW + 4, PICKED + 3))):
        _try_choosing(stage, drawn, law)


def _try_choosing(stage, drawn, law):
    table = prompt_tables.alias_rows(law)
    rows = lookup(table)

    def choose(words, rows, room, prompts):
        store(stage(load(words, WIDTH), rows, room), prompts, 0)

    compiled, plain = np.zeros((2, WIDTH), dtype=np.int64)
    numba.njit(choose)(drawn, rows, np.zeros((2, WIDTH)), compiled)
    store(stage.py_func(load(drawn, WIDTH), rows, np.zeros((2, WIDTH))), plain, 0)
    uniforms = (drawn[WIDTH : 2 * WIDTH] >> np.uint64(11)) * (len(law) / 2**53)
    place = uniforms.astype(np.int64)
    chosen = np.where(uniforms - place >= table[place, 0], table[place, 1], place)
    np.testing.assert_array_equal(compiled, chosen)
    np.testing.assert_array_equal(plain, compiled)


def try_fill_advantages(stage):
    a = Arrays()
    shape = a.n, a.g
    batch = gt.Batch(a.numbers(*shape), a.numbers(*shape) ** 2, a.integers(3, *shape) + 1, *a.numbers(3, a.n), np.array([0.1]))
    for name in ("grpo", "optimal_loo"):
        for n in (a.n, 4):
            *_, found = twins(stage, gt.estimators()[name], batch, np.zeros((n, a.g)))
            assert np.isfinite(found).all()


def try_fill_gains(stage):
    a = Arrays()
    log_ratios = 0.3 * a.numbers(a.d, 6)
    parts = RATIOS["trajectory"].fill, CLIPS["by sign"].fill
    twins(stage, *parts, log_ratios, a.paths.edges, a.paths.lengths, np.ones(a.k), np.array([0.1, 0.2]), np.zeros((a.k, 2, 3, 6)))


def try_fill_aliases(stage):
    laws = np.random.default_rng(1).dirichlet(np.full(7, 0.3), 5)
    laws[3] = np.eye(7)[2]
    twins(stage, laws, np.zeros(35), np.zeros((35, 2), dtype=np.int64))


TRIALS = {name.removeprefix("try_"): trial for name, trial in vars().items() if name.startswith("try_")}


@pytest.mark.parametrize("name", TRIALS)
def test_compiled_stages_agree_with_plain_python(name):
    TRIALS[name](stages()[name])


def test_every_stage_is_tried():
    of_calls = {name for name, value in vars(kernel_call).items() if isinstance(value, Dispatcher)}
    of_tables = {"at_places", "read_rows", "read_short", "read_blocks", "add_to_blocks"}
    elsewhere = of_calls - {"fill_advantages"} | of_tables
    assert set(TRIALS) == set(stages()) - elsewhere, "which test_training_stages.py tries"


@pytest.mark.parametrize("part", [*RATIOS.values(), *CLIPS.values(), *KL_TERMS.values()], ids=lambda part: part.name)
def test_parts_of_an_estimator_agree_with_plain_python(part):
    rng = np.random.default_rng(2)
    log_ratios, room = 0.3 * rng.normal(size=(3, 20)), np.zeros((3, 20))
    if part in RATIOS.values():
        twins(part.fill, log_ratios, 2, room)
    elif part in CLIPS.values():
        for positive in (True, False):
            twins(part.fill, np.exp(log_ratios), 2, positive, part.widths, room)
    else:
        twins(part.fill, log_ratios, room)


@pytest.mark.parametrize(
    ("policy", "kind"), [*zip(POLICIES, MAPS, strict=True), ("tree", "tabular"), ("linear tree", "dense"), ("head tree", "head")]
)
def test_a_policy_has_the_functions_of_its_map(policy, kind, monkeypatch):
    monkeypatch.setattr(ascent, "PICKED", 0)  # test_training.py: dense features in each of the ways they are read
    chosen = token_case(policy).policy
    assert type(chosen.logit_map) is MAPS[kind]
    logits, step = getattr(ascent, f"{kind}_logits"), getattr(ascent, f"{kind}_step")
    assert ascent.ascent(chosen, 2)[:2] == (logits.value, step.value)


def composed(**parts):
    return gt.compose("composed_for_one_test", **{"advantage": "rloo"} | parts)


# ---- draws, response by response


@pytest.mark.parametrize("policy", CASES)
def test_draws_are_those_of_an_inversion_by_hand(policy):
    c = token_case(policy)
    dense, tables = Dense(c), tabulate(c.problem.at(c.theta))
    generators = [np.random.default_rng(1) for _ in range(2)]
    prompts, outcomes = draw_responses(generators[0], tables, 20, 3, 6)
    uniforms = generators[1].random((7, 3, 20)).transpose(2, 0, 1)
    for r in range(20):
        expected = dense.draw(dense.at(c.theta), tables.prompts, uniforms[r])
        for found, one in zip((prompts[r], outcomes[r]), expected, strict=True):
            np.testing.assert_array_equal(found, one)


def test_what_cannot_happen_is_not_drawn_by_the_largest_uniform():
    """The last outcome of the second prompt is impossible, however its distribution function rounds."""
    c = token_case("tree")
    tables = tabulate(c.problem.at(c.theta))
    (prompt,), ((outcome,),) = invert(np.array([[0.5], [np.nextafter(1.0, 0.0)]]), tables)
    assert prompt == 1
    assert c.problem.at(c.theta).outcome_probabilities[1, -1] == 0.0
    assert outcome == 10


def test_draws_are_outcomes_of_their_prompt():
    c = case("linear", "binary", "kl")
    point = c.problem.at(c.theta)
    prompts, outcomes = draw_responses(np.random.default_rng(0), tabulate(point), 35, 5, 4)
    m, responses = prompts[:, :, None], point.outcome_responses[outcomes]
    value = point.rewards[m, outcomes] + point.penalties[m, responses]
    np.testing.assert_allclose(value, np.round(value), atol=1e-12)
    assert set(np.unique(np.round(value))) == {0.0, 1.0}
    assert set(np.unique(prompts)) == {0, 1}
    # The first response to the first prompt never succeeds, the second to the second always does.
    assert (np.round(value)[(m == 0) & (responses == 0)] == 0.0).all()
    assert (np.round(value)[(m == 1) & (responses == 1)] == 1.0).all()


# ---- logit maps of a user's own


class Shifted(gt.LogitMap):
    """A map of a user's own: logits theta_0 k + theta_1 m k."""

    n_prompts, n_logits, dimension = 2, 3, 2
    features = np.array([[[k, m * k] for k in range(3)] for m in range(2)], dtype=np.float64)

    def logits(self, theta):
        return np.einsum("mkd,...d->...mk", self.features, theta)

    def adjoint_by_prompt(self, covectors):
        return np.einsum("mkd,mk->md", self.features, covectors)

    def adjoint(self, covectors):
        return self.adjoint_by_prompt(covectors).sum(axis=0)

    def gram(self):
        return self.features @ self.features.transpose(0, 2, 1)

    def congruence(self, forms):
        return np.einsum("mkd,mkl,mle->de", self.features, forms, self.features)


def test_a_policy_of_the_users_own_needs_only_the_five_maps():
    policies = gt.Policy(Shifted()), gt.LinearSoftmax(Shifted.features)
    bandit, theta = gt.Bandit(np.random.default_rng(5).uniform(size=(2, 3))), [0.3, -0.2]
    own, twin = (gt.Problem(bandit, policy, theta=theta) for policy in policies)
    sizes = {"batch_size": 3, "group_size": 4}
    laws = [gt.gradient_law(one, theta, "optimal_loo", **sizes) for one in (own, twin)]
    np.testing.assert_allclose(laws[0].covariance(), laws[1].covariance(), rtol=1e-12)
    assert np.array_equal(features.features(own.policy.logit_map), Shifted.features)
    sizes |= {"replications": 400, "rng": 1, "workers": 1}
    runs = [gt.simulate_gradients(one, theta, "rloo", **sizes) for one in (own, twin)]
    np.testing.assert_allclose(runs[0].means, runs[1].means, rtol=1e-13)
    sizes |= {"steps": 20, "replications": 4}
    trained = [gt.simulate_training(one, theta, "optimal_loo", gt.Constant(0.1), **sizes).theta for one in (own, twin)]
    np.testing.assert_allclose(*trained, rtol=1e-12)


def test_a_subclass_with_maps_of_its_own_is_simulated_by_them():
    class Own(Doubled, FeatureMap):
        """Features twice as large, by way of the maps alone."""

    c = case("linear")
    arguments = {"batch_size": 3, "group_size": 4, "replications": 400, "rng": 1, "workers": 1}
    policies = gt.Policy(Own(c.features.copy())), gt.LinearSoftmax(2.0 * c.features)
    own, twin = (c.replace(policy=policy).problem for policy in policies)
    for estimator in ("rloo", "optimal_loo"):
        runs = [gt.simulate_gradients(one, c.theta, estimator, **arguments) for one in (own, twin)]
        np.testing.assert_allclose(runs[0].means, runs[1].means, rtol=1e-13)
    arguments |= {"steps": 20, "replications": 4}
    trained = [gt.simulate_training(one, c.theta, "optimal_loo", gt.Constant(0.1), **arguments).theta for one in (own, twin)]
    np.testing.assert_allclose(*trained, rtol=1e-12)


class Single(Shifted):
    """The same map in single precision, and not in the order of the axes."""

    features = np.asfortranarray(Shifted.features, dtype=np.float32)

    def adjoint_by_prompt(self, covectors):
        return np.asfortranarray(super().adjoint_by_prompt(covectors), dtype=np.float32)

    def gram(self):
        return np.asfortranarray(super().gram(), dtype=np.float32)


def strided(lengths, constant):
    """Weigh each token 1, in an array without entries of its own."""
    return np.broadcast_to(1.0, lengths.shape)


def test_arrays_of_the_users_own_reach_the_drivers_in_the_form_that_they_read(registry):
    """A driver reads float64 in the order of the axes, and takes what it is given for that."""
    bandit, theta = gt.Bandit(np.random.default_rng(5).uniform(size=(2, 3))), [0.3, -0.2]
    own, twin = (gt.Problem(bandit, gt.Policy(made)) for made in (Single(), Shifted()))
    sizes = {"batch_size": 4, "group_size": 4, "rng": 1, "workers": 1}
    aggregation = gt.Aggregation("strided", strided)
    made = [composed(ratio="token", advantage="optimal_loo", aggregation=aggregation), gt.estimators()["optimal"]]
    for estimator, other in zip(made, ("optimal_loo", "optimal"), strict=True):
        runs = [
            gt.simulate_gradients(one, theta, [chosen], **sizes, replications=400)
            for one, chosen in ((own, estimator), (twin, other))
        ]
        np.testing.assert_allclose(runs[0].means, runs[1].means, rtol=1e-5)
        trained = [
            gt.simulate_training(one, theta, chosen, gt.Constant(0.1), **sizes, steps=20, replications=4).theta
            for one, chosen in ((own, estimator), (twin, other))
        ]
        np.testing.assert_allclose(*trained, rtol=1e-4)


def test_weights_of_an_aggregation_are_one_for_each_response():
    with pytest.raises(ValueError, match=r"function must have shape \(4,\) = \(K,\), the weights that it returns, got \(1,\)"):
        gt.Aggregation("scalar", lambda lengths, constant: 1.0).shares(np.array([1, 2, 3, 3]))
