"""The kinds of task, lengths and success rates that are examined."""

from grpo_theory.problem.gallery import KINDS

LENGTHS, QUICK_LENGTHS = (16, 64, 256, 1024, 4096), (16, 64, 1024)
RATES = (0.55, 0.7)
"""Success rates that every kind of task can have."""
SETTING = "{kind}, success {success:g}"


def kinds_and_rates(quick, kinds=KINDS):
    """List each kind of task and success rate; all is exact, and a quick run has fewer lengths and one rate."""
    lengths = list(QUICK_LENGTHS if quick else LENGTHS)
    return [{"kind": kind, "success": rate, "lengths": lengths} for kind in kinds for rate in RATES[: 1 if quick else None]]


def point_of(kind, length, success):
    """Return a task of a kind at its own parameter."""
    problem = KINDS[kind](length, success)
    return problem.at(problem.theta)


def reached(chain, start):
    """Return the states in which tokens are drawn that a prompt's responses come to, ascending."""
    found = {start}
    while new := {after for state in found for after in chain.transitions[state][chain.ends[state] == 0].tolist()} - found:
        found |= new
    return tuple(sorted(found))
