"""The kinds of task, lengths and success rates that are examined."""

from grpo_theory.problem.chains import KINDS

LENGTHS, QUICK_LENGTHS = (16, 64, 256, 1024, 4096), (16, 64, 1024)
RATES = (0.55, 0.7)
"""Success rates that every kind of task can have."""
SETTING = "{kind}, success {success:g}"


def kinds_and_rates(quick):
    """List each kind of task and success rate; all is exact, and a quick run has fewer lengths and one rate."""
    lengths = list(QUICK_LENGTHS if quick else LENGTHS)
    return [{"kind": kind, "success": rate, "lengths": lengths} for kind in KINDS for rate in RATES[: 1 if quick else None]]


def point_of(kind, length, success):
    """Return a task of a kind at its own parameter."""
    problem = KINDS[kind](length, success)
    return problem.at(problem.theta)
