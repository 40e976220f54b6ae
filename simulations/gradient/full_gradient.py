"""U6, U9, N9, N11 on SmolLM2's sampled answers: the gradient of all parameters, and the head's.

Nothing is drawn: the shipped answers, rewards and sketches are read. Noise is that of one group about its own prompt's gradient,
as in `quality_path`.

Numbers about the shipped prompts themselves have the error of these prompts' 32 responses and of the sketch (`response_error`,
`sketch_error`). Claims rest on it, as other problems' prompts are fixed too. Numbers about all prompts of these kinds have
`standard_error`, by deleting one prompt at a time, and the limits `low` and `high`. Cosines are among these, because a pair
consists of two prompts.

In the controls V is added to the reward instead of subtracted, leave-one-out has groups of 2, or the curvature is another
prompt's. Squared norms of right answers are multiplied by ten; all gradients, or the head's scores, have a part in common.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.data import sampled_answers
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.gradient.baseline_statements import (
    CORRELATED,
    FIFTH,
    LINE,
    NEAR,
    SAME,
    STRICT_CORRELATED,
    VANILLA_4,
    VANILLA_64,
)
from simulations.gradient.sampled_statistics import (
    ALL,
    BLOCKS,
    BOTH,
    EVERY,
    HEAD,
    UNCENTRED,
    WRONG_SIGN,
    Key,
    cosines,
    of_responses,
    proxies,
    scores_of,
    statistics,
)
from simulations.gradient.sampled_terms import TENFOLD, Means, Sample, mean_of_pairs, means_of_others
from simulations.jackknife import jackknife_error
from simulations.normalisation.measured_statements import ORTHOGONAL_GRADIENTS, WITHIN
from simulations.statements import stated

ASSUMPTION, BY_HEAD = stated("U6/assumption, measured", "U9/head")

POWERLESS = {
    (WITHIN.id, f"SmolLM2, sampled answers, *, {questions}"): "129 questions cannot tell another question's curvature from the "
    "printed correlation"
    for questions in (EVERY, "small sum", "sum", "larger")
}
RELIABLE = 0.8
"""Cosines are of prompts of whose estimated squared gradient at most a fifth is noise."""
SMALL, PRINTED, PRINTED_NEAR = 0.1, 0.34, 0.977
"""A correlation below the first is called none; the correlation of N9; the share of N11 at the start."""
ROOT_2 = float(np.log(2.0)) / 2.0
EDGES, LEVEL = np.linspace(-1.0, 1.0, 41), 0.95


def cells(quick: bool) -> list[Cell]:
    """One cell for all questions, one for each kind by itself; the data are what they are, so quick is no different."""
    data = sampled_answers()
    return [Cell({"data": data.provenance["sha256"], "questions": which}) for which in (EVERY, *data.kind_names)]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Read everything off the data, with its errors; and what the figure shows of prompts and of pairs."""
    questions = settings["questions"]
    read = statistics if questions == EVERY else proxies
    scores = {name: scores_of(name, questions) for name in (ALL, HEAD, UNCENTRED)}
    samples = {name: Sample.of(own) for name, own in scores.items()}
    estimates = read({name: sample.means() for name, sample in samples.items()})
    by_prompt = read({name: sample.without_prompt() for name, sample in samples.items()})
    by_response = read({name: sample.without_response(scores[name]) for name, sample in samples.items()})
    heads: dict[str, Means] = {name: samples[name].means() for name in (HEAD, UNCENTRED)}
    by_block = [read({ALL: Sample.of(scores_of(ALL, questions, i)).means()} | heads) for i in range(BLOCKS)]
    measured: Rows = []
    for key, estimate in estimates.items():
        size = len(by_prompt[key])
        spread = float(np.std([block[key] for block in by_block], ddof=1) / np.sqrt(BLOCKS))
        row = _row(key, float(estimate), float(jackknife_error(by_prompt[key])), size)
        measured.append(row | {"sketch_error": spread} | of_responses(by_response[key]))
    if questions == EVERY:
        measured += _of_everything({name: samples[name] for name in (ALL, HEAD)})
    return measured


def _of_everything(samples: dict[str, Sample]) -> Iterator[dict[str, Any]]:
    """Yield what is not a function of means: cosines, the best group sizes, and what the figure shows."""
    known = np.flatnonzero(np.all([s.terms["power"] > RELIABLE * np.diag(s.products) for s in samples.values()], axis=0))
    for name, sample in samples.items():
        matrices = cosines(scores_of(name), known)
        by_block = [cosines(scores_of(name, block=i), known) for i in range(BLOCKS)]
        for quantity, of_pairs in matrices.items():
            error = float(jackknife_error(means_of_others(of_pairs)))
            spread = np.std([mean_of_pairs(block[quantity]) for block in by_block], ddof=1) / np.sqrt(BLOCKS)
            row = _row((name, quantity, 0), mean_of_pairs(of_pairs), error, len(known))
            yield row | {"sketch_error": float(spread)}
        yield from _of_figure(name, sample, matrices["cosine"])
        yield _best(name)


def _row(key: Key, estimate: float, error: float, size: int) -> dict[str, Any]:
    half = float(stdtrit(size - 1, (1.0 + LEVEL) / 2.0)) * error
    labels = dict(zip(("gradient", "quantity", "group_size"), key, strict=True))
    return labels | {
        "estimate": estimate,
        "standard_error": error,
        "replications": size,
        "low": estimate - half,
        "high": estimate + half,
    }


def _best(name: str) -> dict[str, Any]:
    """Return the optimal group size with Fieller's limits."""
    data = sampled_answers()
    scores = data.head if name == HEAD else data.sketches
    best = gt.intervals.group_size_fieller(gt.Rollouts(data.rewards[data.index], scores[data.index]), LEVEL)
    row = _row((name, "G*", 0), float(best.estimate), float(best.standard_error), len(data.prompts))
    return row | {"low": float(best.low), "high": float(best.high)}


def _of_figure(name: str, sample: Sample, of_pairs: Array) -> Iterator[dict[str, Any]]:
    """Yield each prompt's variance and curvature, and the density of cosines."""
    at = {"gradient": name, **EXACT}
    kinds = [sampled_answers().kind_names[kind] for kind in sampled_answers().kinds]
    power = sample.terms["P"] / sample.terms["P"].mean()
    for kind, variance, estimate in zip(kinds, sample.terms["variance"].tolist(), power.tolist(), strict=True):
        yield at | {"quantity": "prompt", "kind": kind, "variance": variance, "estimate": estimate}
    density, _ = np.histogram(of_pairs[np.triu_indices(len(of_pairs), 1)], EDGES, density=True)
    for cosine, estimate in zip(((EDGES[:-1] + EDGES[1:]) / 2.0).tolist(), density.tolist(), strict=True):
        yield at | {"quantity": "density", "cosine": cosine, "estimate": estimate}


def rows(settings: Settings, results: list[Any]) -> Iterator[dict[str, Any]]:
    """One row for each gradient, quantity and group size; one for each prompt, and for each bin of cosines."""
    (measured,) = results
    yield from ({"questions": settings["questions"]} | row | {"prediction": np.nan} for row in measured)


def _given_prompts(row: pd.Series, prediction: float, size: bool = False) -> Evidence:
    """Return the evidence about the shipped prompts: the error of responses and of the sketch."""
    estimate = abs(float(row["estimate"])) if size else float(row["estimate"])
    error = float(np.hypot(row["response_error"], row["sketch_error"]))
    replications = int(row["freedom"]) + 1 if error > 0.0 else 0
    return Evidence(estimate, prediction, error, replications=replications)


def _over_prompts(row: pd.Series) -> Evidence:
    """Return the evidence of a share of pairs: the error over prompts and that of the sketch."""
    error = float(np.hypot(row["standard_error"], row["sketch_error"]))
    return evidence(row.to_dict() | {"standard_error": error}, PRINTED_NEAR)


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge, for all parameters and for the head, what is printed of real models' gradients."""
    where, known = "SmolLM2, sampled answers", table[table["group_size"].notna()]  # beside those that the figure shows alone
    for questions, part in known[known["group_size"] == 0].groupby("questions", sort=False):
        at = part.set_index(["gradient", "quantity"])
        for name in (ALL, HEAD):
            own, broken = (_given_prompts(at.loc[name, f"Fisher, trace{whose}"], PRINTED) for whose in ("", ", another's"))
            yield WITHIN.claim(f"{where}, {name}, Fisher, trace, {questions}", own, broken)
    at = known[known["questions"] == EVERY].set_index(["gradient", "quantity", "group_size"]).sort_index()
    for name in (ALL, HEAD):
        yield from _of_gradient(at.loc[name], f"{where}, {name}")
    own, broken = (_given_prompts(at.loc[BOTH, f"log (G* - 1), {head}", 0], ROOT_2, size=True) for head in (HEAD, UNCENTRED))
    yield BY_HEAD.claim(where, own, broken)


def _of_gradient(at: pd.DataFrame, where: str) -> Iterator[Claim]:
    """Judge one gradient, by quantity and group size."""
    for statement, size, quantity, wrong, bound in (
        (VANILLA_4, 4, "leave-one-out against none", (f"{WRONG_SIGN} against none", 0), 0.0),
        (VANILLA_64, 64, "leave-one-out against none", (f"{WRONG_SIGN} against none", 0), 0.0),
        (NEAR, 8, "leave-one-out against value", ("means of pairs against value", 8), FIFTH),
        (SAME, 32, "leave-one-out against value", ("means of pairs against value", 32), LINE),
        (CORRELATED, 0, "value against optimal", (f"{WRONG_SIGN} against optimal", 0), 0.0),
        (STRICT_CORRELATED, 0, "value against none", (f"{WRONG_SIGN} against none", 0), 0.0),
    ):
        own, broken = (_given_prompts(at.loc[key], bound) for key in ((quantity, size), wrong))
        facts = {"standard error over prompts": at.loc[(quantity, size), "standard_error"]}
        yield statement.claim(where, own, broken, facts)
    correlations = (at.loc["correlation of ||W||^2 and Z" + suffix, 0] for suffix in ("", TENFOLD))
    own, broken = (_given_prompts(row, SMALL, size=True) for row in correlations)
    yield ASSUMPTION.claim(where, own, broken)
    own, broken = (_over_prompts(at.loc["share below 0.1" + what, 0]) for what in ("", ", a common part"))
    yield ORTHOGONAL_GRADIENTS.claim(f"{where}, start", own, broken)
