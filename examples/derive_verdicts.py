"""Derive each verdict of docs/verdicts.csv again from its row: run it in the top folder."""

import pandas as pd


def says(kind, low, high, prediction, margin, exact):
    """Return whether limits confirm a statement of a kind, and whether they refute it."""
    slack = 1e-10 * max(1.0, abs(prediction))
    near = slack + {"equality": margin * abs(prediction), "rate": margin}.get(kind, 0.0)
    if kind == "law":
        return high < margin, low > margin
    if kind in ("identity", "equality", "rate"):
        return prediction - near <= low and high <= prediction + near, high < prediction - near or low > prediction + near
    if kind == "upper bound":
        return high <= prediction + slack, low > prediction + slack
    return high < prediction - slack, low > prediction + slack or (exact and low == high >= prediction - slack)


def verdict(row):
    """Return the verdict of a row: of what a paper measured, confirmed is "reproduced here", and refuted is not."""
    exact = row.replications == 0
    inner = says(row.kind, row.low, row.high, row.prediction, row.margin, exact)
    outer = says(row.kind, row.outer_low, row.outer_high, row.prediction, row.margin, exact)
    power = says(row.kind, row.control_low, row.control_high, row.control_prediction, row.margin, exact)[1]
    if inner[0] or outer[0]:
        return "confirmed" if power else "no power"
    if outer[1]:
        return "no power" if row.sound == "refuted" else "refuted"
    room = {"equality": row.margin * abs(row.prediction), "rate": row.margin, "law": row.margin}
    bound = row.prediction if row.kind == "upper bound" and row.prediction > 0 else float("inf")
    return "estimate only" if row.high - row.estimate > room.get(row.kind, bound) else "inconclusive"


table = pd.read_csv("docs/verdicts.csv", keep_default_na=False)
derived = [verdict(row) for row in table.itertuples()]
told = table["verdict"].replace({"reproduced here": "confirmed", "not reproduced here": "refuted"})
print(f"{len(table):,} claims, of which {(told != derived).sum()} are derived otherwise")
