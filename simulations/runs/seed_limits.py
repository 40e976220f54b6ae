"""Limits of what few seeds of a training run say."""

from scipy.special import stdtrit


def with_limits(row: dict[str, float]) -> dict[str, float]:
    """Return a summary of seeds with its 95% limits by Student's t; the same whole seeds serve both estimators."""
    half = float(stdtrit(row["replications"] - 1, 0.975)) * row["standard_error"]
    return row | {"low": row["estimate"] - half, "high": row["estimate"] + half}
