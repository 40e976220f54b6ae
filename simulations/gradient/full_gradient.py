"""What only a real gradient tells: SmolLM2's sampled answers, with respect to all its parameters and to its head alone.

Nothing is drawn: the shipped answers, rewards and sketches are read.  Noise is that of one group about its own prompt's gradient,
as in `quality_path`.  What is said of the shipped prompts themselves has the error of their 32 responses and of the sketch
(`response_error`, `sketch_error`), and claims rest on it, as other problems' prompts are fixed too; what is said of all prompts
of these kinds has `standard_error`, by deleting one prompt at a time, and the limits `low` and `high`.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

import grpo_theory as gt
from grpo_theory.arrays import Array, Integers
from grpo_theory.data import sampled_answers
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.intervals.u_statistics import prompt_gradients
from simulations.claims import claim, unconverted
from simulations.gradient.sampled_terms import (
    ANOTHERS,
    TENFOLD,
    Means,
    Sample,
    Scores,
    components,
    mean_of_pairs,
    means_of_others,
    noise,
    proxy_correlation,
    within_correlation,
)

ALL, HEAD, BOTH = "all parameters", "head", "head beside all parameters"
UNCENTRED = "head, uncentred"
"""The control of the head: scores with a common part, whose square is three times the mean of theirs, so that c3 is fourfold."""
GROUP_SIZES = (4, 8, 16, 32, 64)
RELIABLE = 0.8
"""Cosines are of prompts of whose estimated squared gradient at most a fifth is noise."""
SMALL, PRINTED, MARGIN = 0.1, 0.34, 0.1 / 0.34
"""A correlation below is called none; the printed one of N9, give or take 0.1."""
NEAR_ORTHOGONAL, PRINTED_NEAR, RELATIVE = 0.1, 0.977, 0.1
"""N11: the share of |cos| below the first at the start, give or take a tenth."""
CLOSE, SAME, ROOT_2 = 0.2, 0.05, float(np.log(2.0)) / 2.0
BLOCKS, EDGES, LEVEL = 4, np.linspace(-1.0, 1.0, 41), 0.95

WRONG_SIGN = "value, wrong sign"
EVERY = "all kinds"
"""Of the questions."""

Key = tuple[str, str, int]
"""Gradient, quantity, and group size, 0 where it has none."""


def cells(quick: bool) -> list[Cell]:
    """One cell for all questions, one for each kind by itself; the data are what they are, so quick is no different."""
    data = sampled_answers()
    return [Cell({"data": data.provenance["sha256"], "questions": which}) for which in (EVERY, *data.kind_names)]


def scores_of(gradient: str, questions: str = EVERY, block: int | None = None) -> Scores:
    """Return the shipped scores of all questions or of a kind; of the sketches one block by itself if it is asked for."""
    data = sampled_answers()
    kept = np.ones(len(data.kinds), dtype=bool) if questions == EVERY else data.kinds == data.kind_names.index(questions)
    if gradient == HEAD:
        return Scores(data.rewards, data.head, data.index[kept], exact=True)
    if gradient == UNCENTRED:
        common = np.sqrt(3.0 * (data.head**2).sum(axis=1)[data.index].mean())
        scores = np.column_stack([data.head, np.full(len(data.head), common)])
        return Scores(data.rewards, scores, data.index[kept], exact=True)
    blocks = data.sketches if block is None else np.sqrt(BLOCKS) * np.split(data.sketches, BLOCKS, axis=1)[block]
    return Scores(data.rewards, blocks, data.index[kept], exact=False)


def statistics(means: dict[str, Means]) -> dict[Key, Array]:
    """Return what is read off the means of each gradient's terms."""
    found: dict[Key, Array] = {}
    for name, own in means.items():
        c1, c2, c3 = components(own)
        found |= {(name, quantity, 0): value for quantity, value in (("c1", c1), ("c2", c2), ("c3", c3))}
        found[name, "log c3/c1", 0] = np.log(c3 / c1)
        for size in GROUP_SIZES:
            by = noise(own, size)
            for other in ("none", "value", "optimal"):
                found[name, f"leave-one-out against {other}", size] = by["leave-one-out"] / by[other] - 1.0
            found[name, "means of pairs against value", size] = by["means of pairs"] / by["value"] - 1.0
        for one, other in (
            ("value", "optimal"),
            ("value", "none"),
            ("none", "optimal"),
            (WRONG_SIGN, "none"),
            (WRONG_SIGN, "optimal"),
        ):
            found[name, f"{one} against {other}", 0] = by[one] / by[other] - 1.0
        for suffix in ("", TENFOLD):
            found[name, f"correlation of ||W||^2 and Z{suffix}", 0] = within_correlation(own, suffix)
    for head in (HEAD, UNCENTRED):
        apart = found[head, "log c3/c1", 0] - found[ALL, "log c3/c1", 0]
        found[BOTH, f"log (G* - 1), {head}", 0] = apart / 2.0
    found[BOTH, "share of ||W||^2", 0] = means[HEAD]["P"] / means[ALL]["P"]
    return found | proxies(means)


def proxies(means: dict[str, Means]) -> dict[Key, Array]:
    """Return the correlations over prompts of the reward's variance and the curvature, its own or (control) another's."""
    found: dict[Key, Array] = {}
    for name in (ALL, HEAD):
        own = means[name]
        found |= {
            (name, "Fisher, trace", 0): proxy_correlation(own),
            (name, "Fisher, trace, another's", 0): proxy_correlation(own, ANOTHERS),
        }
    return found


def cosines(scores: Scores, known: Integers) -> dict[str, Array]:
    """Return matrices (K, K) over pairs of some prompts: cosines, those with a common part, their squares, and whether below 0.1.

    The noise in the lengths is taken out; squares are products of two estimates, one from each half of the responses and of the
    sketch, and so without noise of their own.  Control: all gradients have a part in common, half as long as they are.
    """
    sample = Sample.of(scores)
    lengths = np.sqrt(sample.terms["power"][known])
    scale = np.outer(lengths, lengths)
    whole = sample.products[np.ix_(known, known)] / scale
    parts = []
    for half, responses in enumerate(np.split(scores.answers[known], 2, axis=1)):
        rewards, some = scores.of(responses)
        if not scores.exact:
            some = np.sqrt(2.0) * np.split(some, 2, axis=-1)[half]
        gradients = prompt_gradients(gt.Rollouts(rewards, some))
        parts.append(gradients @ gradients.T / scale)
    found = {"cosine": whole, "squared cosine": parts[0] * parts[1]}
    for name, of_pairs in (("", whole), (", a common part", (0.25 + whole) / 1.25)):
        found[f"share below 0.1{name}"] = (np.abs(of_pairs) < NEAR_ORTHOGONAL).astype(np.float64)
    return found


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> Rows:
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
    found: Rows = []
    for key, estimate in estimates.items():
        size = len(by_prompt[key])
        spread = float(np.std([block[key] for block in by_block], ddof=1) / np.sqrt(BLOCKS))
        row = _row(key, float(estimate), jackknife_error(by_prompt[key]), size)
        found.append(row | {"sketch_error": spread} | of_responses(by_response[key]))
    return found + (_of_everything({name: samples[name] for name in (ALL, HEAD)}) if questions == EVERY else [])


def _of_everything(samples: dict[str, Sample]) -> Rows:
    """Return what is not a function of means: cosines, the best group sizes, and what the figure shows."""
    found: Rows = []
    known = np.flatnonzero(np.all([s.terms["power"] > RELIABLE * np.diag(s.products) for s in samples.values()], axis=0))
    for name, sample in samples.items():
        matrices = cosines(scores_of(name), known)
        by_block = [cosines(scores_of(name, block=i), known) for i in range(BLOCKS)]
        for quantity, of_pairs in matrices.items():
            error = jackknife_error(means_of_others(of_pairs))
            spread = np.std([mean_of_pairs(block[quantity]) for block in by_block], ddof=1) / np.sqrt(BLOCKS)
            row = _row((name, quantity, 0), mean_of_pairs(of_pairs), error, len(known))
            found.append(row | {"sketch_error": float(spread)})
        found += _of_figure(name, sample, matrices["cosine"])
        found.append(_best(name))
    return found


def jackknife_error(without: Array) -> float:
    """Return the standard error from an estimate without each of B prompts."""
    return float(np.sqrt(len(without) - 1.0) * without.std())


def of_responses(without: Array) -> dict[str, float]:
    """Return the standard error given the prompts, from an estimate without each response (B, G), and its degrees of freedom.

    Responses are draws within their prompts: the variances of prompts add up, and Satterthwaite's number of degrees of freedom
    says how many of them share in it.
    """
    group_size = without.shape[1]
    variances = (group_size - 1.0) * without.var(axis=1)
    total = float(variances.sum())
    freedom = total**2 / float((variances**2).sum()) * (group_size - 1.0) if total > 0.0 else 1.0
    return {"response_error": float(np.sqrt(total)), "freedom": freedom}


def _row(key: Key, estimate: float, error: float, size: int) -> dict[str, Any]:
    half = float(stdtrit(size - 1, (1.0 + LEVEL) / 2.0)) * error
    found = dict(zip(("gradient", "quantity", "group_size"), key, strict=True))
    return found | {
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


def _of_figure(name: str, sample: Sample, of_pairs: Array) -> Rows:
    """Return each prompt's variance and curvature, and the density of cosines."""
    at = {"gradient": name, **EXACT}
    kinds = [sampled_answers().kind_names[kind] for kind in sampled_answers().kinds]
    power = sample.terms["P"] / sample.terms["P"].mean()
    of_prompts = zip(kinds, sample.terms["variance"].tolist(), power.tolist(), strict=True)
    found: Rows = [at | {"quantity": "prompt", "kind": kind, "variance": v, "estimate": p} for kind, v, p in of_prompts]
    density, _ = np.histogram(of_pairs[np.triu_indices(len(of_pairs), 1)], EDGES, density=True)
    middles = ((EDGES[:-1] + EDGES[1:]) / 2.0).tolist()
    return found + [
        at | {"quantity": "density", "cosine": x, "estimate": y} for x, y in zip(middles, density.tolist(), strict=True)
    ]


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each gradient, quantity and group size; one for each prompt, and for each bin of cosines."""
    return [{"questions": settings["questions"]} | row | {"prediction": np.nan} for row in results[0]]


def _given_prompts(row: pd.Series, prediction: float, margin: float = 0.0, size: bool = False) -> Evidence:
    """Return the evidence about the shipped prompts: the error of responses and of the sketch."""
    estimate = abs(float(row["estimate"])) if size else float(row["estimate"])
    error = float(np.hypot(row["response_error"], row["sketch_error"]))
    replications = int(row["freedom"]) + 1 if error > 0.0 else 0
    return Evidence(estimate, prediction, error, margin, replications)


def _over_prompts(row: pd.Series) -> Evidence:
    """Return the evidence of a share of pairs: the error over prompts and that of the sketch."""
    error = float(np.hypot(row["standard_error"], row["sketch_error"]))
    return evidence(row.to_dict() | {"standard_error": error}, PRINTED_NEAR, RELATIVE)


def _proxy_evidence(part: pd.DataFrame) -> list[Evidence]:
    at = part.set_index("quantity")
    return [_given_prompts(at.loc[quantity], PRINTED, MARGIN) for quantity in ("Fisher, trace", "Fisher, trace, another's")]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Judge, for all parameters and for the head, what is printed of real models' gradients.

    Controls: V added to the reward instead of taken off; leave-one-out in groups of 2; squared norms of right answers times ten;
    another prompt's curvature; a part that all gradients have in common; a head whose scores have one.  What is said of cosines
    is about all prompts of these kinds, because a pair is of two of them.
    """
    whole = table[~table["quantity"].isin(["prompt", "density"])]
    at = whole[whole["questions"] == EVERY].set_index(["gradient", "quantity", "group_size"]).sort_index()
    found = [
        claim("N9/within", f"SmolLM2, sampled answers, {name}, Fisher, trace, {questions}", *_proxy_evidence(part))
        for (name, questions), part in whole[whole["group_size"] == 0].groupby(["gradient", "questions"], sort=False)
        if name in (ALL, HEAD)
    ]
    for name in (ALL, HEAD):
        where = f"SmolLM2, sampled answers, {name}"
        for statement, size, own, control, bound in (
            ("U6/vanilla, G=4", 4, "leave-one-out against none", (f"{WRONG_SIGN} against none", 0), 0.0),
            ("U6/vanilla, G=64", 64, "leave-one-out against none", (f"{WRONG_SIGN} against none", 0), 0.0),
            ("U6/near, G=8", 8, "leave-one-out against value", ("means of pairs against value", 8), CLOSE),
            ("U6/same, G=32", 32, "leave-one-out against value", ("means of pairs against value", 32), SAME),
            ("U6/correlated", 0, "value against optimal", (f"{WRONG_SIGN} against optimal", 0), 0.0),
            ("U6/strict, correlated", 0, "value against none", (f"{WRONG_SIGN} against none", 0), 0.0),
        ):
            both = (at.loc[(name, own, size)], at.loc[(name, *control)])
            facts = {"standard error over prompts": both[0]["standard_error"]}
            found.append(claim(statement, where, *(_given_prompts(row, bound) for row in both), facts=facts))
        both = tuple(at.loc[(name, f"correlation of ||W||^2 and Z{suffix}", 0)] for suffix in ("", TENFOLD))
        found.append(claim("U6/assumption, measured", where, *(_given_prompts(row, SMALL, size=True) for row in both)))
        shares = (at.loc[(name, f"share below 0.1{what}", 0)] for what in ("", ", a common part"))
        found.append(claim("N11/printed", f"{where}, start", *(_over_prompts(row) for row in shares)))
    ratios = (at.loc[(BOTH, f"log (G* - 1), {head}", 0)] for head in (HEAD, UNCENTRED))
    found.append(claim("U9/head", "SmolLM2, sampled answers", *(_given_prompts(row, ROOT_2, size=True) for row in ratios)))
    return found


STUDY = unconverted(
    "full_gradient",
    "U6, U9, N9, N11 on SmolLM2's sampled answers: the gradient of all parameters, and the head's",
    cells,
    compute,
    rows,
    claims,
    (
        "U6/assumption, measured",
        "U6/vanilla, G=4",
        "U6/vanilla, G=64",
        "U6/near, G=8",
        "U6/same, G=32",
        "U6/correlated",
        "U6/strict, correlated",
        "U9/head",
        "N9/within",
        "N11/printed",
    ),
)
