"""Gradients that are simulated on chains: exact laws by recursion, listed twins, and bits that depend on no worker."""

import numpy as np
import pytest
from scipy.stats import binom
from streams_by_numpy import raw

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.simulate.chain import gradients, walks, weighing
from grpo_theory.simulate.draw.prompt_tables import alias_rows, fill_aliases
from grpo_theory.simulate.draw.streams import as_seed_sequence, mix, stream_words

LIMIT = 4.9
SIZES = {"batch_size": 2, "group_size": 4}
DIRECTIONS = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, -1.0], [0.5, 0.5, -1.0, 0.0]])


def long_parity():
    chain = gt.TokenChain([[0, 1], [1, 0]], 1024, starts=[0, 1])
    return gt.Problem(gt.StateRewards([0.1, 0.9], [0.3, 0.7]), chain, theta=[0.0, -7.0, 0.0, -5.0])


def long_stopping():
    """Responses of some 300 tokens that end by themselves, most of them before the horizon."""
    chain = gt.TokenChain([[0, 1], [1, 0]], 1024, end_token=1, starts=[0, 1], features=STOPPING)
    return gt.Problem(gt.StateRewards([0.2, 0.7]), chain, theta=[-6.5, 1.0, 0.4, 0.0])


STOPPING = np.array([[[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.3, 0.1]], [[0.2, 0.0, -0.1, 1.0], [1.0, 0.0, 0.0, -0.5]]])


def short(horizon=4, seed=0):
    """A chain of three states with an end token, few enough responses to be listed, and three reward values."""
    rng = np.random.default_rng(seed)
    chain = gt.TokenChain([[0, 1, 2], [1, 2, 0], [2, 0, 1]], horizon, end_token=2, starts=[0, 1])
    rewards = gt.StateRewards.from_law([0.0, 1.0, 2.5], rng.dirichlet(np.ones(3), 3), [0.3, 0.7])
    return gt.Problem(rewards, chain, theta=rng.normal(size=9))


def simulate(problem, estimators, replications=4000, rng=5, **more):
    return gt.simulate_gradients(problem, problem.theta, estimators, **SIZES, replications=replications, rng=rng, **more)


def z_scores(run, e, law, directions):
    """Return how far means are from a law, in standard errors: predicted ones where the law has them."""
    along = (run.along[e] - directions @ law.mean) / np.sqrt(law.variance_along(directions) / run.replications)
    errors = (run.mse[e] - law.mse) / run.mse_standard_error[e]
    prompts = (run.prompt_mse[e] - law.prompt_mse) / run.prompt_mse_standard_error[e]
    return np.array([*along, errors, prompts])


def assert_of_law(problem, law_problem, names, behaviour=None, **more):
    directions = np.eye(problem.theta.size)[:3]
    run = simulate(problem, names, directions=directions, behaviour=behaviour, **more)
    for e, name in enumerate(names):
        law = gt.gradient_law(law_problem, problem.theta, name, **SIZES, behaviour=behaviour)
        z = z_scores(run, e, law, directions)
        assert np.abs(z).max() < LIMIT, (name, z)
        assert run.mse_standard_error[e] < 0.1 * law.mse, "an error of a half would show"
    return run


@pytest.mark.parametrize("make", [long_parity, long_stopping])
def test_estimates_at_a_thousand_tokens_have_the_law_that_recursion_gives(make):
    problem = make()
    assert_of_law(problem, problem, ["rloo", "grpo", "grpo_without_ratio"], replications=3000)


@pytest.mark.parametrize("make", [long_parity, long_stopping])
def test_off_policy_estimates_at_a_thousand_tokens_have_their_law(make):
    problem = make()
    behaviour = problem.theta + np.array([0.1, -0.2, 0.05, 0.1])
    names = ["rloo", "trl_grpo_loss", "trl_dr_grpo_loss"]
    assert_of_law(problem, problem, names, behaviour=behaviour, replications=3000)


TWIN = ["gspo", "trl_rloo_loss", "tic_grpo", "cispo", "optimal_loo", "optimal", "oracle", "verl_opo", "verl_dr_grpo_loss"]


@pytest.mark.parametrize("away", [0.0, 0.15])
def test_estimates_have_the_law_of_the_listed_twin(away):
    """Ratios of sequences, clips, pools of a group's tokens, and kernels that read norms, lengths and what oracles know."""
    problem = short(horizon=3)
    behaviour = None if away == 0.0 else problem.theta + away * np.cos(np.arange(9))
    assert_of_law(problem, problem.listed(), TWIN, behaviour=behaviour, replications=20_000)


@pytest.mark.parametrize(
    "name", ["james_stein", "dapo", "trl_grpo_batch", "verl_cispo_loss", "verl_reinforce_plus_plus_baseline"]
)
def test_estimates_that_couple_groups_agree_with_the_listed_twin_simulated(name):
    problem, behaviour = short(), short().theta + 0.15 * np.sin(np.arange(9))
    more = {"behaviour": behaviour, "directions": np.eye(9)[:3], "replications": 20_000}
    one, other = simulate(problem, name, **more), simulate(problem.listed(), name, rng=6, **more)
    for field in ("mse", "prompt_mse", "along"):
        errors = (getattr(run, f"{field}_standard_error")[0] for run in (one, other))
        z = (getattr(one, field)[0] - getattr(other, field)[0]) / np.hypot(*errors)
        assert np.abs(z).max() < LIMIT, (field, z)


def test_another_behaviour_and_another_estimator_are_refuted():
    problem, twin, directions = short(), short().listed(), np.eye(9)[:3]
    behaviour = problem.theta + 0.3 * np.cos(np.arange(9))
    run = simulate(problem, ["trl_rloo_loss", "cispo"], replications=20_000, behaviour=behaviour, directions=directions)
    for name, where in (("trl_rloo_loss", None), ("cispo", behaviour), ("gspo", behaviour)):
        law = gt.gradient_law(twin, problem.theta, name, **SIZES, behaviour=where)
        assert np.abs(z_scores(run, 0, law, directions)).max() > 2 * LIMIT, name
    long = long_parity()
    run = simulate(long, "rloo", replications=3000, behaviour=[0.0, -6.5, 0.0, -5.0], directions=DIRECTIONS)
    law = gt.gradient_law(long, long.theta, "rloo", **SIZES)
    assert np.abs(z_scores(run, 0, law, DIRECTIONS)).max() > 2 * LIMIT


def on_chain(problem, names, block=1 << 18, seed=4):
    words, point = stream_words(as_seed_sequence(seed)), problem.at(problem.theta)
    estimators = [find(name) for name in names]
    return gradients.ChainGradients(point, point, estimators, (2, 4), np.eye(9)[:1], block, words)


def test_bits_are_the_same_for_any_workers_number_and_split():
    problem, block, names = short(), 1152, ["rloo", "gspo", "optimal_loo"]
    whole, own = 2 * block + 7, on_chain(problem, names, block)
    alone = own.simulate(0, whole, 1).to_dict()
    assert all(own.simulate(0, whole, workers).to_dict() == alone for workers in (2, 5))
    parts = [own.simulate(i, replications, 2) for i, replications in enumerate((block, block, 7))]
    assert parts[0].merge(parts[1]).merge(parts[2]).to_dict() == alone
    assert on_chain(problem, names, block, seed=5).simulate(0, whole, 1).to_dict() != alone
    public = [simulate(problem, names, replications=2500, workers=workers).to_dict() for workers in (1, 2, None)]
    assert public[0] == public[1] == public[2]


def test_a_replication_is_the_same_whatever_their_number_and_company():
    problem = short()

    def observed(names, number, count):
        return on_chain(problem, names).observe(number, count).reshape(len(names), 5, count)

    both = observed(["rloo", "gspo"], 0, 300)
    assert np.array_equal(both[:1], observed(["rloo"], 0, 300))
    assert np.array_equal(both[1:, :, :17], observed(["gspo"], 0, 17))
    assert np.array_equal(both[:, :, 256:], observed(["rloo", "gspo"], 256, 44))
    assert not np.array_equal(both[:, :, :44], both[:, :, 256:])


def drawn(problem, n_groups, group_size=4, seed=8, first=0):
    found = walks.make_walks(n_groups, group_size, problem.policy.horizon)
    words = stream_words(as_seed_sequence(seed))
    walks.draw_walks(words, 0, first, n_groups * group_size, walks.chances_of(problem.at(problem.theta)), found)
    return found


def test_responses_and_rewards_are_drawn_with_the_chances_of_the_listed_twin():
    problem = short(horizon=3)
    twin, size = problem.listed(), 4
    found = drawn(problem, 50_000, size)
    numbers = {tokens: k for k, tokens in enumerate(twin.policy.paths.tokens)}
    rows = (edges[:length] for edges, length in zip(found.edges, found.lengths, strict=True))
    responses = np.array([numbers[tuple((row % 3).tolist())] for row in rows])
    prompts = np.repeat(found.prompts, size)
    chances = twin.policy.probabilities(twin.theta)
    law = problem.bandit.prompt_weights[:, None, None] * chances[:, :, None] * twin.bandit.probabilities
    counts = np.zeros(law.shape)
    np.add.at(counts, (prompts, responses, np.searchsorted(problem.bandit.values, found.rewards)), 1)
    # Prompts are drawn for whole groups, so that responses count given the prompts that there were.
    given = np.bincount(prompts, minlength=2)[:, None, None]
    law = law / problem.bandit.prompt_weights[:, None, None]
    low, high = binom.ppf(1e-6, given, law), binom.ppf(1.0 - 1e-6, given, law)
    assert ((low <= counts) & (counts <= high)).all()
    assert (high - low < 0.2 * given).all()
    n = found.prompts.size
    assert binom.ppf(1e-6, n, 0.3) <= (found.prompts == 0).sum() <= binom.ppf(1.0 - 1e-6, n, 0.3)
    wrong = np.roll(law, 1, axis=1)
    assert not ((binom.ppf(1e-6, given, wrong) <= counts) & (counts <= binom.ppf(1.0 - 1e-6, given, wrong))).all()


def test_what_has_no_chance_is_never_drawn():
    chain = gt.TokenChain([[0, 1], [1, 0]], 64, starts=[0, 1, 1])
    problem = gt.Problem(gt.StateRewards([0.0, 1.0], [0.0, 1.0, 0.0]), chain, theta=[0.0, -800.0, -800.0, 0.0])
    found = drawn(problem, 1000)
    assert set(found.prompts) == {1}
    assert set(found.edges[:, 0]) == {3}
    assert set(found.edges.ravel()) == {0, 3}
    assert set(found.rewards) == {0.0}
    np.testing.assert_array_equal(walks.sums_of(np.array([0.5, 0.5, 0.0, 0.0])), [0.5, np.inf, np.inf, np.inf])


def test_streams_are_numpys_and_a_response_has_one_of_its_own():
    words = stream_words(as_seed_sequence(2))
    with np.errstate(over="ignore"):
        state = mix(words[0], words[1] + np.uint64(7), words[2] + np.uint64(3), np.uint64(1))
        expected, made = raw(state, 50), []
        for _ in range(50):
            word, *state = walks.turn(*state)
            made.append(word)
    assert made == expected.tolist()
    problem = short()
    whole, later = drawn(problem, 10), drawn(problem, 5, first=20)
    assert np.array_equal(whole.lengths[20:], later.lengths)
    assert np.array_equal(whole.rewards[20:], later.rewards)
    assert np.array_equal(whole.prompts[5:], later.prompts)


def test_alias_tables_of_many_laws_are_those_of_each():
    laws = np.random.default_rng(1).dirichlet(np.full(7, 0.3), 40)
    laws[3] = np.eye(7)[2]
    thresholds, choices = np.empty(280), np.empty((280, 2), dtype=np.int64)
    fill_aliases(laws, thresholds, choices)
    tables = np.stack([alias_rows(law) for law in laws])
    assert np.array_equal(thresholds.reshape(40, 7), tables[..., 0])
    assert np.array_equal(choices[:, 0], np.arange(280))
    assert np.array_equal(choices[:, 1].reshape(40, 7) - 7 * np.arange(40)[:, None], tables[..., 1])


@pytest.mark.compiled
def test_compiled_code_does_what_plain_python_does():
    problem = short()
    point, words = problem.at(problem.theta), stream_words(as_seed_sequence(9))
    chances, plain, compiled = walks.chances_of(point), walks.make_walks(6, 4, 4), walks.make_walks(6, 4, 4)
    with np.errstate(over="ignore"):
        walks.draw_walks.function(words, 5, 0, 8, chances, plain)
    walks.draw_walks(words, 5, 0, 8, chances, compiled)
    assert all(np.array_equal(one, other) for one, other in zip(plain, compiled, strict=True))
    factors, positive = np.random.default_rng(0).normal(size=24), np.arange(24, dtype=np.uint8) % 2
    gains, log_ratios = np.random.default_rng(1).normal(size=(2, 9)), np.random.default_rng(2).normal(size=9)
    tabulated = np.zeros((2, 6, 9))
    for function, weights in zip((weighing.add_tabulated.function, weighing.add_tabulated), tabulated, strict=True):
        function(compiled, factors, gains, positive, weights)
    assert np.array_equal(*tabulated)
    gspo, anew, after = find("gspo"), np.zeros((2, 6, 9)), (compiled, factors, positive)
    fills = [(gspo.ratio.fill.function, gspo.clip.fill.function), (gspo.ratio.fill.value, gspo.clip.fill.value)]
    for function, parts, weights in zip((weighing.add_anew, weighing.compiled_add_anew()), fills, anew, strict=True):
        function(*parts, gspo.clip.widths, log_ratios, *after, weights)
    np.testing.assert_allclose(anew[0], anew[1], rtol=1e-12)


def wild_ratio(log_ratios, length, ratios):
    ratios[:length] = 1e200


def test_what_cannot_be_simulated_is_refused(registry):
    problem = short()
    with pytest.raises(ValueError, match="behaviour must give every token of the current policy a probability above 0"):
        simulate(problem, "gspo", replications=2, behaviour=[0.0, 0.0, -900.0, *np.zeros(6)])
    gt.compose("wild", advantage="reinforce", ratio=gt.estimation.Ratio("wild", wild_ratio))
    with pytest.raises(ValueError, match=r"have squares within double precision\. Over responses of up to 4 tokens"):
        simulate(problem, "wild", replications=2)
    with pytest.raises(ValueError, match=r"directions must have shape \(1, 9\) = \(J, d\), got \(1, 3\)"):
        simulate(problem, "rloo", replications=2, directions=np.ones((1, 3)))

    @gt.estimator("spoilt")
    def spoilt(batch, advantages):
        advantages[:, :] = np.nan

    with pytest.raises(ValueError, match="must fill finite advantages"):
        simulate(problem, "spoilt", replications=2)
