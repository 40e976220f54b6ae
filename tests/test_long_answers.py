"""Runs of long answers: binomial numbers bit by bit, updates of the mean and the spread that laws have, and another simulator."""

import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import approx_fprime
from scipy.special import expit

import grpo_theory as gt
from grpo_theory.simulate.draws import block_streams, next_uniform
from simulations.runs.binomial_draws import binomials, ones
from simulations.runs.long_answers import DIMENSION, RESPONSES, Texts, Update, step_size, train, update_of

ZERO = np.zeros(DIMENSION)
KINDS = [Texts("text", 1), Texts("text", 64), Texts("format", 16), Texts("walk", 64), Texts("text", 16, transfer=0.2)]


def test_ones_are_counted():
    words = np.random.default_rng(0).integers(0, 2**64, size=100, dtype=np.uint64)
    for word in [np.uint64(0), np.uint64(2**64 - 1), *words]:
        assert ones(word) == bin(int(word)).count("1")


@pytest.mark.parametrize(("count", "chance"), [(1, 0.3), (7, 0.5), (64, 0.9), (300, 0.05), (65, 0.99)])
def test_binomial_numbers_have_their_law(count, chance):
    """Beside each other too: numbers that share words of coins are as if apart."""
    state, found = block_streams(np.random.SeedSequence(1), 0).lone, np.empty((20_000, 3), dtype=np.int64)
    for taken in found:
        binomials(state, np.array([count, 0, 40]), chance, taken)
    assert not found[:, 1].any()
    assert abs(np.corrcoef(found[:, 0], found[:, 2])[0, 1]) < 4.5 / np.sqrt(len(found))
    drawn = found[:, 0]
    law = stats.binom(count, chance)
    cuts = np.unique(law.ppf([0.05, 0.25, 0.5, 0.75, 0.95]))
    chances = np.diff(np.concatenate([[0.0], law.cdf(cuts), [1.0]]))
    found = np.histogram(drawn, np.concatenate([[-1], cuts, [count + 1]]) + 0.5)[0]
    kept = chances > 1e-12
    assert stats.chisquare(found[kept], chances[kept] * drawn.size / chances[kept].sum()).pvalue > 1e-4


@pytest.mark.parametrize("world", KINDS, ids=lambda one: f"{one.kind}-{one.tokens}")
def test_worlds_start_as_told(world):
    for prompts in world.draw(3):
        scale = 0.1 if world.kind == "format" else 1.0
        assert prompts.success(ZERO) == pytest.approx(scale * np.geomspace(0.5, 0.01, world.prompts), rel=1e-9)
        assert prompts.chances(ZERO).sum(axis=-1) == pytest.approx(1.0)
        if world.kind != "walk":
            assert prompts.lengths == pytest.approx(world.tokens)


def test_right_options_share_what_is_right():
    """Those of all prompts have the transfer in common, on average."""
    prompts = Texts("text", 1, prompts=64, transfer=0.2).draw(0)[0]
    cosines = prompts.features[:, 0] @ prompts.features[:, 0].T
    assert cosines[np.triu_indices(64, 1)].mean() == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize("world", KINDS, ids=lambda one: f"{one.kind}-{one.tokens}")
def test_updates_have_the_mean_and_the_error_of_the_law(world):
    """The leave-one-out gradient has no bias, and its error is c1/B + c2/(BG) + c3/(BG(G - 1)), as the step's size has it."""
    prompts, size = world.draw(0)[0], 4
    gradient = approx_fprime(ZERO, lambda theta: prompts.success(theta).mean(), 1e-6)
    thetas = train(prompts, update_of(prompts, "rloo", size), [1.0], size, (1,), 4000, np.random.SeedSequence(2))[0, :, 0]
    errors = thetas.std(axis=0, ddof=1) / np.sqrt(len(thetas))
    assert (np.abs(thetas.mean(axis=0) - gradient) < 4.5 * errors + 1e-6).all()
    squares = ((thetas - gradient) ** 2).sum(axis=1)
    c1, c2, c3 = constants(prompts)
    batch = RESPONSES // size
    law = c1 / batch + c2 / RESPONSES + c3 / (RESPONSES * (size - 1))
    assert abs(squares.mean() - law) < 4.5 * squares.std() / np.sqrt(len(squares))
    assert step_size(prompts, ZERO) == pytest.approx(1.0 + np.sqrt(c3 / c1))


def constants(prompts):
    """The constants by Monte Carlo-free sums over outcomes, each token's score taken apart: an independent way to c1, c2, c3."""
    found = []
    for m in range(len(prompts.features)):
        chances, options = prompts.chances(ZERO)[m], np.exp(prompts.log_options(ZERO)[m])
        q = 1.0 / (1.0 + np.exp(-prompts.uncertain))
        value, gradient, second, oracle = chances @ prompts.right, np.zeros(DIMENSION), 0.0, 0.0
        for o, chance in enumerate(chances):
            score = np.zeros(DIMENSION)
            for e, times in enumerate(prompts.paths[o]):
                own = prompts.state == prompts.state[e]
                score += times * (prompts.features[m, e] - options[own] @ prompts.features[m, own])
            square = score @ score + (prompts.harmless[prompts.level[o]] * q * (1 - q)).sum()
            gradient += chance * prompts.right[o] * score
            second += chance * square
            oracle += chance * (prompts.right[o] - value) ** 2 * square
        found.append((gradient, oracle - gradient @ gradient, value * (1 - value) * second + gradient @ gradient))
    gradients = np.array([one[0] for one in found])
    return ((gradients - gradients.mean(axis=0)) ** 2).sum(axis=1).mean(), *np.mean([one[1:] for one in found], axis=0)


def test_one_token_is_trained_as_the_package_trains_it():
    prompts, size = Texts("text", 1, prompts=4).draw(1)[0], 8
    frozen = 1e4
    columns = np.concatenate([prompts.features, prompts.start[..., None] / frozen], axis=-1)
    theta = np.append(ZERO, frozen)
    problem = gt.Problem(gt.Bandit(np.tile(prompts.right.astype(float), (4, 1))), gt.LinearSoftmax(columns), theta=theta)
    assert step_size(prompts, ZERO) == pytest.approx(gt.group_size_law(problem, theta).optimum, rel=1e-4)
    for name, optimiser, rate, decay in (("grpo", gt.SGD(), 4.0, 0.0), ("rloo", gt.Adam(), 0.1, 0.999)):
        sizes = {"batch_size": RESPONSES // size, "group_size": size, "steps": 12, "replications": 400}
        theirs = gt.simulate_training(problem, theta, name, gt.Constant(rate), **sizes, optimiser=optimiser, rng=3).objectives[
            :, -1
        ]
        update = update_of(prompts, name, size, decay=decay)
        ours = prompts.success(train(prompts, update, [rate], size, (12,), 400, np.random.SeedSequence(4))[0, :, 0]).mean(axis=-1)
        # Adam moves the frozen parameter, too, by at most 12 steps of 0.1 in 10,000.
        assert abs(ours.mean() - theirs.mean()) < 4.5 * np.hypot(ours.std(), theirs.std()) / 20.0 + 1e-4
        assert ours.std() == pytest.approx(theirs.std(), rel=0.3)


@pytest.mark.parametrize("aggregation", ["own length", "token mean"])
def test_lengths_count_as_the_aggregation_says(aggregation):
    """The mean update of a walk: each response over its length, and, for many prompts, all over the batch's mean length."""
    prompts, size = Texts("walk", 64).draw(0)[0], 16
    chances, options = prompts.chances(ZERO), np.exp(prompts.log_options(ZERO))
    visits = prompts.paths @ (prompts.state[:, None] == prompts.state)
    scores = (prompts.paths - visits * options[:, None]) @ prompts.features
    lengths = prompts.lengths[prompts.level]
    mean = (chances @ lengths).mean()
    weights = mean / lengths if aggregation == "own length" else np.ones_like(lengths)
    apart = prompts.right - (chances @ prompts.right)[:, None]
    wanted = np.einsum("mo,mo,o,mod->d", chances, apart, weights, scores) / len(chances)
    update = update_of(prompts, "rloo", size, aggregation)
    thetas = train(prompts, update, [1.0], size, (1,), 4000, np.random.SeedSequence(5))[0, :, 0]
    # A ratio of sums over 256 responses is off by a few thousandths of its length.
    slack = 4.5 * thetas.std(axis=0) / np.sqrt(len(thetas)) + 0.01 * np.abs(wanted).max() * (aggregation == "token mean")
    assert (np.abs(thetas.mean(axis=0) - wanted) < slack).all()


def test_terms_are_gradients_and_adam_is_adam():
    """Without advantages and with one prompt updates are exact: those of the entropy and of KL, by finite differences."""
    prompts, rate = Texts("text", 16, prompts=1).draw(0)[0], 0.5
    none = np.zeros((5, 2))
    one = np.ones(1)
    update = Update(none, one, one, bonus=0.3, penalty=0.2)
    at = train(prompts, update, [rate], 4, (1, 2, 3), 1, np.random.SeedSequence(0))[0, 0]

    def gain(theta):
        q, start = (1.0 / (1.0 + np.exp(-prompts.uncertain - prompts.sorts @ where)) for where in (theta, ZERO))
        options, first = prompts.log_options(theta)[0], prompts.log_options(ZERO)[0]
        harmless = q * np.log(q / start) + (1 - q) * np.log((1 - q) / (1 - start))
        divergence = (np.exp(options) * (options - first)).sum() + prompts.harmless[0] @ harmless
        return 0.3 * float(prompts.entropy(theta)) * 16 - 0.2 * divergence

    for before, after in zip([ZERO, *at], at, strict=False):
        assert after - before == pytest.approx(rate * approx_fprime(before, gain, 1e-7), abs=1e-5)
    at = train(prompts, update._replace(decay=0.99), [rate], 4, (1, 2), 1, np.random.SeedSequence(0))[0, 0]
    slopes = [approx_fprime(where, gain, 1e-7) for where in (ZERO, at[0])]
    assert at[0] == pytest.approx(rate * np.sign(slopes[0]), abs=1e-3)
    first, second = (0.09 * slopes[0] + 0.1 * slopes[1]) / 0.19, (0.0099 * slopes[0] ** 2 + 0.01 * slopes[1] ** 2) / 0.0199
    assert at[1] - at[0] == pytest.approx(rate * first / np.sqrt(second), abs=1e-3)


@pytest.mark.parametrize("tokens", [16, 64])
def test_a_mean_over_tokens_of_one_length_is_a_rate(tokens):
    """Runs of sums with rate r are those of means over all tokens with r times the length."""
    prompts, size = Texts("text", tokens).draw(0)[0], 8
    sums = update_of(prompts, "grpo", size)
    means = sums._replace(counted=sums.counted * prompts.lengths)
    runs = [
        train(prompts, update, [rate], size, (1, 4, 16), 2, np.random.SeedSequence(8))
        for update, rate in ((sums, 4.0), (means, 4.0 * tokens))
    ]
    assert runs[0] == pytest.approx(runs[1], rel=1e-12)
    assert update_of(prompts, "grpo", size, "token mean").counted == pytest.approx(sums.counted)  # of the usual length


def test_a_token_mean_divides_by_the_tokens_of_the_batch():
    """Beside the sum over the same draws: the quotient is the batch's mean length over the usual one, of 256 responses."""
    prompts, size = Texts("walk", 64).draw(0)[0], 16
    chances = prompts.chances(ZERO)
    lengths = prompts.lengths[prompts.level]
    law = chances.mean(axis=0)
    mean, within = law @ lengths, (chances * (lengths - (chances @ lengths)[:, None]) ** 2).sum(axis=1).mean()
    between = ((chances @ lengths - mean) ** 2).mean()
    found = [
        train(prompts, update_of(prompts, "rloo", size, one), [1.0], size, (1,), 2000, np.random.SeedSequence(6))[0, :, 0]
        for one in ("sum", "token mean")
    ]
    quotients = found[0] / found[1]
    assert quotients == pytest.approx(np.broadcast_to(quotients[:, :1], quotients.shape))
    spread = np.sqrt(within / RESPONSES + between / (RESPONSES // size)) / mean
    assert quotients[:, 0].mean() == pytest.approx(1.0, abs=4.5 * spread / np.sqrt(2000))
    assert quotients[:, 0].std() == pytest.approx(spread, rel=4.5 / np.sqrt(2 * 2000))


def test_updates_of_one_rollout_climb_its_clipped_objective():
    """The same draws, and sum min(r A, clip(r) A) over all tokens, differentiated numerically, at each of three updates."""
    prompts, size, rate, seed = Texts("walk", 64, prompts=3).draw(0)[0], 64, 8.0, np.random.SeedSequence(7)
    update = update_of(prompts, "grpo", size, "own length", low=0.1, high=0.3)
    at = [ZERO, *(train(prompts, update._replace(times=n), [rate], size, (1,), 1, seed)[0, 0, 0] for n in (1, 2, 3))]
    state, first = block_streams(seed, 0).lone, prompts.log_options(ZERO)
    asked = np.bincount([int(next_uniform(state) * 3) for _ in range(RESPONSES // size)], minlength=3)
    sums, drawn = np.exp(first @ prompts.paths.T).cumsum(axis=-1), np.zeros((size + 1, 2, len(prompts.lengths)), dtype=int)
    responses = []
    for m in np.repeat(range(3), asked):
        outcomes = [np.searchsorted(sums[m], next_uniform(state) * sums[m, -1], side="right") for _ in range(size)]
        n = prompts.right[outcomes].sum()
        for o in outcomes:
            told = n, int(prompts.right[o]), prompts.level[o]
            drawn[told] += 1
            responses.append((m, prompts.paths[o], update.advantages[told[:2]] * update.own[told[2]]))
    tokens = []
    worth = update.advantages[..., None] * update.own
    cells = np.argwhere((drawn > 0) & (worth != 0.0))
    for k, logit in enumerate(prompts.uncertain):
        counts = np.array([drawn[tuple(cell)] * prompts.harmless[cell[2], k] for cell in cells])
        taken = np.empty_like(counts)
        binomials(state, counts, expit(logit), taken)
        tokens += [(k, worth[tuple(cell)], one, n - one) for cell, n, one in zip(cells, counts, taken, strict=True)]

    def clipped(ratio, advantage):
        return np.minimum(ratio * advantage, np.clip(ratio, 0.9, 1.3) * advantage)

    def objective(theta, unclipped=False):
        told = np.multiply if unclipped else clipped
        now, logits = prompts.log_options(theta), prompts.uncertain + prompts.sorts @ theta
        ratios, pairs = np.exp(now - first), np.stack([expit(one * logits) / expit(one * prompts.uncertain) for one in (1, -1)])
        total = sum(paths @ told(ratios[m], advantage) for m, paths, advantage in responses)
        total += sum(taken @ told(pairs[:, k], weight) for k, weight, *taken in tokens)
        return total / RESPONSES

    for before, after in itertools.pairwise(at):
        assert after - before == pytest.approx(rate * approx_fprime(before, objective, 1e-7), abs=2e-5)
    # Clips were at work: without them the last update would be another one.
    assert np.abs(approx_fprime(at[2], objective, 1e-7) - approx_fprime(at[2], objective, 1e-7, True)).max() > 0.01
