"""Studies of a user's own, as files: one exact, one simulated, and a file that both may import."""

EXACT = '''"""A square is a product.

The square of a number is held against its product with itself; broken, one factor is larger by 1%.
"""

import grpo_theory as gt
from own_numbers import NUMBERS

WORDS = "the square of x is x times x"
SQUARE = gt.Statement(
    "mine/square",
    "my notes, Lemma 1",
    f"{WORDS}, for every x",
    "identity",
    "x is a number",
    formula=r"$x^2=x\\cdot x$ for every $x$.",
    margin=gt.Margin(0.0, "both sides are exact"),
)


def compare(settings):
    for x in NUMBERS:
        yield SQUARE.compare(f"x = {x}", x**2, x * x, broken=1.01 * x * x)
        yield {"x": x, "estimate": float(x**2)}


def draw(table):
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot("x", "estimate", data=table[table["statement"] == ""])
    return figure
'''

SIMULATED = '''"""The mean of a squared normal."""

import numpy as np
import grpo_theory as gt
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness import Cell

MEAN = gt.Statement(
    "mine/mean",
    "my notes, Lemma 2",
    "the square of a normal has mean 1",
    "equality",
    margin=gt.Margin(0.02, "a reader of a figure would not see 2%"),
)


def cells(quick):
    return [Cell({"scale": scale, "draws": 2_000 if quick else 20_000}, chunks=3) for scale in (1.0, 1.1)]


def simulate(settings, rng, chunk):
    draws = settings["scale"] * rng.standard_normal((16, settings["draws"]))
    return (draws**2).mean(axis=1).tolist()


def rows(settings, results):
    means = np.concatenate(results)
    error = means.std(ddof=1) / np.sqrt(means.size)
    row = {"scale": settings["scale"], "prediction": 1.0, "estimate": means.mean(), "standard_error": error}
    return [row | {"replications": means.size}]


def claims(table):
    own, broken = table.to_dict("records")
    return [MEAN.claim("unit normal", evidence(own), evidence(broken))]
'''

NUMBERS = "NUMBERS = (2, 3)\n"
FILES = {"own_squares.py": EXACT, "own_means.py": SIMULATED, "own_numbers.py": NUMBERS}


def write(folder):
    """Write the files into a folder."""
    for name, text in FILES.items():
        (folder / name).write_text(text)


def forget(modules):
    """Forget the modules that were run from them, and from others whose names begin so."""
    for name in [name for name in modules if name.startswith("own_")]:
        del modules[name]
