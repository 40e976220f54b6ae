"""Verdicts of checks on made-up results of the runs that they read."""

from grpo_theory.evidence import judge
from grpo_theory.harness.sides import claim_of


def judged(checks, found, case=None, **options):
    """Return the verdicts of checks in one case whose run returned `found`, by id."""
    claims = []
    for check in checks:
        stated = {one.id: one for one in check.statements}
        rows = check.rows(check.listed(True)[0] if case is None else case, lambda variant: {"found": found})
        claims += [claim_of(stated[row["statement"]], row) for row in rows]
    return judge(claims, **options).set_index("id")
