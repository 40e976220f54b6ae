"""Estimators that remember: laws given the memory, training against all runs that there can be, and what is refused."""

import pickle
import re
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from enumeration import Dense, assert_close, assert_law, batch_law, case, prompts, tree_case
from runs_by_hand import COMPOSITIONS, Algorithm, assert_match, composed, match, small_case

import grpo_theory as gt

STEPS, TWO_ARMS = gt.PowerLaw(0.9, 0.6), gt.gallery.problem("two-arms")


# ---- three filters as kernels, and each again as its formula


def follow(memory, rewards, parameters):
    memory[0] += parameters[0] * (rewards.mean() - memory[0])


def less_memory(batch, advantages):
    """A = Z - m."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - batch.memory[b, 0]


def kalman(memory, rewards, parameters):
    """Of a level that wanders with variance q and is seen with noise of variance r: parameters are q and r."""
    spread = memory[1] + parameters[0]
    gain = spread / (spread + parameters[1] / rewards.size)
    memory[0] += gain * (rewards.mean() - memory[0])
    memory[1] = (1.0 - gain) * spread


def standardised(batch, advantages):
    """A = (Z - m)/sqrt(v + r)."""
    for b in range(batch.rewards.shape[0]):
        scale = np.sqrt(batch.memory[b, 1] + batch.parameters[1])
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = (batch.rewards[b, g] - batch.memory[b, 0]) / scale


def count(memory, rewards, parameters):
    """Discount the counts of failures and of successes, and add the new ones."""
    for i in range(2):
        memory[i] *= parameters[0]
    for g in range(rewards.size):
        memory[1 if rewards[g] > 0.5 else 0] += 1.0


def less_beta(batch, advantages):
    """A = Z - E[p], p of the Beta law with these counts."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - batch.memory[b, 1] / (batch.memory[b, 0] + batch.memory[b, 1])


def grow(memory, rewards, parameters):
    memory[0] *= 1.0 + parameters[0] * rewards.mean()


def times_memory(batch, advantages):
    """A = m (Z - 0.3)."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.memory[b, 0] * (batch.rewards[b, g] - 0.3)


def made(name, kernel, function, start, **parameters):
    return gt.estimation.make_estimator(name, kernel, parameters=parameters, exchangeable=True, memory=gt.Memory(function, start))


MEAN = made("mean_for_one_test", less_memory, follow, [0.4], rate=0.6)
KALMAN = made("kalman_for_one_test", standardised, kalman, [0.3, 0.5], wander=0.2, noise=0.25)
BETA = made("beta_for_one_test", less_beta, count, [1.0, 0.5], discount=0.7)


def next_kalman(memory, z):
    level, variance = memory
    precision, seen = 1.0 / (variance + 0.2), len(z) / 0.25
    return (precision * level + seen * np.mean(z)) / (precision + seen), 1.0 / (precision + seen)


@dataclass(frozen=True)
class Filter:
    """What is remembered after a group's rewards, and the baseline and the divisor by it."""

    estimator: gt.Estimator
    after: Any
    baseline: Any
    divisor: Any = lambda memory: 1.0

    @property
    def start(self):
        return tuple(self.estimator.advantage.memory.start[0])


FILTERS = {
    "mean": Filter(MEAN, lambda m, z: (0.4 * m[0] + 0.6 * np.mean(z),), lambda m: m[0]),
    "kalman": Filter(KALMAN, next_kalman, lambda m: m[0], lambda m: np.sqrt(m[1] + 0.25)),
    "beta": Filter(BETA, lambda m, z: tuple(0.7 * m[i] + np.sum((z > 0.5) == i) for i in (0, 1)), lambda m: m[1] / sum(m)),
}


# ---- exact laws, given the memory


def oracle(batch, advantages):
    """A = (Z - V)/sd: what a memory of a baseline and a divisor is, if an oracle is told these."""
    for b in range(batch.rewards.shape[0]):
        advantages[b] = (batch.rewards[b] - batch.values[b]) / batch.standard_deviations[b]


ORACLE = gt.estimation.make_estimator("oracle_for_one_test", oracle)
ROWS = {"mean": [[0.9], [-0.4]], "kalman": [[0.2, 0.1], [0.7, 1.3]], "beta": [[3.0, 1.0], [0.5, 2.0]]}
WORLDS = [case("linear", "binary"), case("head", "graded", "kl"), tree_case("shared", "graded", n_prompts=2)]
OFF = [{}, {}, {"ratio": "token", "clip": "by sign", "aggregation": "group tokens"}]


def told(c, kind, rows, kl="k1 in reward", behaviour=None):
    """Return the prompts as an oracle sees them who is told what is remembered."""
    one, seen = FILTERS[kind], prompts(c, kl, behaviour)
    return [p._replace(value=one.baseline(row), standard_deviation=one.divisor(row)) for p, row in zip(seen, rows, strict=True)]


@pytest.mark.parametrize(("world", "parts"), list(zip(WORLDS, OFF, strict=True)))
@pytest.mark.parametrize("kind", FILTERS)
def test_laws_given_the_memory_are_those_of_an_oracle_who_is_told_it(kind, world, parts, registry):
    """By enumeration of all groups; at the start, and for a row for each prompt, of one point."""
    found, twin = FILTERS[kind].estimator, ORACLE
    if parts:
        found = composed(parts | {"advantage": found}, "remembering_for_one_test")
        twin = composed(parts | {"advantage": twin}, "told_for_one_test")
    sizes, behaviour, now = {"batch_size": 2, "group_size": 3}, world.behaviour if parts else None, world.problem.at(world.theta)
    then = world.problem.at(behaviour) if parts else now
    for estimator, rows in ((found, [FILTERS[kind].start] * 2), (found.with_memory(ROWS[kind]), ROWS[kind])):
        law, looks = gt.exact.law_between(now, then, estimator, **sizes), told(world, kind, rows, behaviour=behaviour)
        assert_law(law, batch_law(world, twin, 2, 3, behaviour=behaviour, looks=looks))
        assert_close(gt.gradient_mean(world.problem, world.theta, estimator, **sizes, behaviour=behaviour), law.mean)


@pytest.mark.parametrize("kind", FILTERS)
def test_simulated_estimates_have_the_law_given_the_memory(kind, seed):
    c, estimator = case("tabular", "binary"), FILTERS[kind].estimator.with_memory(ROWS[kind])
    sizes, how = {"batch_size": 2, "group_size": 3}, {"replications": 50_000, "rng": seed(1), "directions": np.eye(c.theta.size)}
    law = gt.gradient_law(c.problem, c.theta, estimator, **sizes)
    run = gt.simulate_gradients(c.problem, c.theta, estimator, **sizes, **how)
    assert abs(run.mse[0] - law.mse) < 4.9 * run.mse_standard_error[0]
    assert (np.abs(run.along[0] - law.mean) < 4.9 * run.along_standard_error[0]).all()
    at_start = gt.gradient_mse(c.problem, c.theta, FILTERS[kind].estimator, **sizes)
    assert abs(run.mse[0] - at_start) > 9.0 * run.mse_standard_error[0]


# ---- training, against all runs that there can be


@dataclass(frozen=True)
class Remembering(Algorithm):
    """The algorithm with a filter, whose memory of each prompt goes along the path."""

    filter: Any = None

    def serve(self, path, kept, prompts, outcomes):
        """Return the path and what is remembered after a rollout."""
        rewards = self.dense.seen(self.sampler(path), self.estimator).rewards[prompts[:, None], outcomes]
        before, kept = kept or {}, dict(kept or {})
        memories = [before.get(m, self.filter.start) for m in prompts]
        pairs = zip(memories, rewards, strict=True)
        advantages = np.array([(z - self.filter.baseline(m)) / self.filter.divisor(m) for m, z in pairs])
        for m, z in zip(prompts, rewards, strict=True):
            kept[m] = tuple(self.filter.after(kept.get(m, self.filter.start), z))
        path, _, clipped = super().serve(path, None, prompts, outcomes, advantages)
        return path, kept, clipped


COURSES = {
    "a running mean": ("mean", "tabular", "binary plain", {}, {"steps": 3}),
    "a prompt twice in a batch, or two": ("kalman", "linear", "binary plain", {}, {"steps": 2, "batch_size": 2, "group_size": 1}),
    "several updates a rollout": ("mean", "tabular", "binary plain one", {}, {"steps": 4, "batch_size": 2, "inner_steps": 2}),
    "lag, ratio and clip": ("beta", "linear tree", "binary plain one", COMPOSITIONS[0], {"steps": 3, "lag": 1}),
    "penalty in the reward": ("kalman", "linear", "graded kl one", {"kl": "k2 in reward"}, {"steps": 3}),
}


def course(name):
    """Return a case, the estimator, the filter, and how it is trained."""
    kind, policy, problem, parts, how = COURSES[name]
    rewards, penalty, *one = problem.split()
    found = FILTERS[kind].estimator
    if parts:
        found = composed(parts | {"advantage": found}, "remembering_for_one_test")
    return small_case(policy, rewards, penalty, 1 if one else 2), found, FILTERS[kind], {"batch_size": 1, "group_size": 2} | how


@pytest.mark.parametrize("name", COURSES)
def test_runs_are_those_that_there_can_be_and_come_as_often_as_they_should(name, registry):
    """To 1e-9, and by Pearson's statistic. Runs that forget are others."""
    c, estimator, own, how = course(name)
    runs = gt.simulate_training(c.problem, c.theta, estimator, STEPS, **how, replications=20_000, rng=1)
    steps, sizes = STEPS.steps(how.pop("steps")), [how.pop(one) for one in ("batch_size", "group_size")]
    law = Remembering(Dense(c), estimator, steps, **how, filter=own).runs(c.theta, *sizes)
    assert_match(runs, c.problem, law)
    forgets = replace(own, after=lambda m, z: m)
    assert match(runs, c.problem, Remembering(Dense(c), estimator, steps, **how, filter=forgets).runs(c.theta, *sizes))[0] > 1e-3


def test_on_a_chain_it_is_as_with_responses_that_are_listed(seed):
    policy = gt.TokenChain([[0, 1], [1, 0]], 2, starts=[0])
    chain = gt.Problem(gt.StateRewards([0.2, 0.9]), policy, theta=np.linspace(-0.5, 0.5, policy.dimension))
    listed, sizes = chain.listed(), {"batch_size": 2, "group_size": 2}
    grows, held = (made("grows_for_one_test", times_memory, grow, [1.5], rate=rate) for rate in (9.0, 0.0))
    laws = [gt.gradient_law(one, one.theta, grows, **sizes) for one in (chain, listed)]
    assert laws[0].mse == pytest.approx(laws[1].mse, rel=1e-12)
    run = gt.simulate_gradients(chain, chain.theta, grows, **sizes, replications=4_000, rng=seed(3))
    assert abs(run.mse[0] - laws[0].mse) < 4.9 * run.mse_standard_error[0]
    how = {**sizes, "schedule": gt.Constant(0.1), "steps": 2, "rng": seed(4)}
    trained = [
        gt.simulate_training(one, one.theta, kind, **how, replications=n).theta
        for one, kind, n in ((chain, grows, 1_000), (listed, grows, 20_000), (listed, held, 20_000))
    ]
    means, errors = zip(*((theta.mean(axis=0), theta.var(axis=0) / len(theta)) for theta in trained), strict=True)
    apart = [np.abs(means[0] - means[i]) / np.sqrt(errors[0] + errors[i]) for i in (1, 2)]
    assert apart[0].max() < 4.9 < 9.0 < apart[1].max()


# ---- bits, processes, and what is refused


def test_it_travels_and_its_start_is_its_own():
    there = pickle.loads(pickle.dumps(BETA.with_memory([[4.0, 2.0]])))
    assert there.advantage.memory.start.tolist() == [[4.0, 2.0]]
    assert BETA.advantage.memory.start.tolist() == [[1.0, 0.5]]
    assert gt.advantages([[1.0, 0.0]], there)[0] == pytest.approx([2.0 / 3.0, -1.0 / 3.0])


def test_advantages_of_groups_have_a_row_each_whatever_their_sizes():
    found = gt.advantages([[1.0, 0.0], [2.0], [0.0, 1.0]], MEAN.with_memory([[0.1], [0.2], [0.3]]))
    assert [group.round(12).tolist() for group in found] == [[0.9, -0.1], [1.8], [-0.3, 0.7]]
    assert gt.advantages([[1.0]], MEAN)[0].tolist() == [0.6]


def beyond(memory, rewards, parameters):
    memory[2] = 1.0


def spelled(memory, rewards, parameters):
    memory[0] = rewards.sun()


def writes(memory, rewards, parameters):
    rewards[0] = memory[0]


def drawn(memory, rewards, parameters):
    memory[0] = np.random.normal()  # noqa: NPY002


def reads_unannounced(batch, advantages):
    advantages[:, :] = batch.memory[0, 0]


def test_one_that_forgets_leaves_nothing_to_one_that_reads():
    """At one point, whose classes are kept, and with the same start."""

    def centred(batch, advantages):
        for b in range(batch.rewards.shape[0]):
            for g in range(batch.rewards.shape[1]):
                advantages[b, g] = batch.rewards[b, g] - 0.25

    how = {"parameters": {"rate": 0.1}, "memory": gt.Memory(follow, [0.25])}
    both, point = (gt.estimation.make_estimator("one", own, **how) for own in (centred, less_memory)), TWO_ARMS.at()
    found = [gt.exact.law_between(point, point, one, batch_size=1, group_size=2).mse for one in both]
    assert found[0] == pytest.approx(found[1], rel=1e-12)


def test_another_memory_is_another_estimator_and_no_index_leaves_it(registry):
    def wander(memory, rewards, parameters):
        memory[int(memory[0])] += 1.0

    def add(start, function=follow):
        return gt.estimator("keeps_of_test", parameters={"rate": 0.1}, memory=gt.Memory(function, start))(less_memory)

    assert add([0.5]).advantage.memory.start.tolist() == add([0.5]).advantage.memory.start.tolist()
    for start, function in (([0.6], follow), ([0.5], wander)):
        with pytest.raises(ValueError, match="name must be new"):
            add(start, function)
    wandering = gt.estimation.make_estimator("wanders", less_memory, memory=gt.Memory(wander, [0.0]))
    sizes = {"batch_size": 2, "group_size": 2, "steps": 4, "replications": 8, "rng": 0}
    with pytest.raises(IndexError):
        gt.simulate_training(TWO_ARMS, None, wandering, gt.Constant(0.1), **sizes)


def test_mistakes_are_told(check_refused):
    problem, sizes = gt.gallery.problem("tabular"), {"batch_size": 2, "group_size": 4}
    law = partial(gt.gradient_law, problem, problem.theta, **sizes)
    train = partial(
        gt.simulate_training, problem, problem.theta, schedule=gt.Constant(0.1), **sizes, steps=2, replications=2, rng=1
    )
    optimum = gt.find_optimum(kl := gt.gallery.problem("kl-linear"), kl.theta)
    update = "'mean_for_one_test' has a memory: gt.gradient_law has one update"
    refused = [
        (lambda: MEAN.with_memory([0.1, 0.2]), "start must have shape (1, 1) = (M, S)"),
        (lambda: law(MEAN.with_memory([[0.1], [0.2]])), "start must have 1 or 6 rows in the memory of 'mean_for_one"),
        (lambda: gt.estimators()["rloo"].with_memory([0.5]), "estimator 'rloo' has no memory"),
        (lambda: gt.Memory(follow, [np.nan]), "start must be finite"),
        (lambda: gt.Memory(less_memory, [1.0]), "plain function of 3 arguments; a memory's function is remember(memory, rewards"),
        (lambda: gt.estimation.make_estimator("a", less_memory, memory=follow), "memory must be a Memory(function, start)"),
        (lambda: law(made("a", less_memory, beyond, [0.5, 0.5])), "IndexError: index 2 is out of bounds"),
        (lambda: law(made("a", less_memory, writes, [0.5])), "assignment destination is read-only"),
        (lambda: train(estimator=made("a", less_memory, spelled, [0.5])), "has no attribute 'sun'"),
        (lambda: train(estimator=made("a", less_memory, drawn, [0.5])), "'drawn' draws random numbers"),
        (lambda: law(gt.estimation.make_estimator("a", reads_unannounced)), "IndexError: index 0 is out of bounds"),
        (lambda: train(estimator=MEAN, allocation="vip"), "allocation needs an estimator whose advantages depend on"),
        (lambda: gt.mean_path(problem, problem.theta, MEAN, gt.Constant(0.1), group_size=4, steps=2), update),
        (lambda: gt.fixed_point(problem, problem.theta, MEAN, group_size=4), update),
        (lambda: gt.limit_law(kl, optimum, MEAN, **sizes, step_scale=9.0), update),
        (lambda: gt.estimation.apart("a", advantage=MEAN, rewards=[[0.0]]), "advantage must not be an oracle's or have a memory"),
        (lambda: gt.exact.mean_advantages(MEAN, [0.0, 1.0], [0.5, 0.5], group_size=4), "read only rewards"),
    ]
    check_refused(*((call, re.escape(words)) for call, words in refused), error=(TypeError, ValueError))
