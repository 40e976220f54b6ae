"""Shares of groups with equal rewards that are predicted are marked in the table, and those that are measured are not."""

from tables import rows, write

import grpo_theory as gt
from grpo_theory.page.advice.text import sections


def test_sizes_beyond_the_logged_ones_are_marked_as_predicted(tmp_path):
    log = gt.read_rollouts(write(tmp_path / "rollouts.jsonl", rows(responses=8)))
    advice = gt.plan.advise(log, 1024)
    (section,) = (part for part in sections(advice) if part.title == "Group sizes")
    shown = {int(row[0].replace(",", "")): row[4] for row in section.table[1:] if row[4]}
    measured = dict(zip(advice.rewards.uniform.group_sizes.tolist(), advice.rewards.uniform.measured.tolist(), strict=True))
    assert {size: share.endswith("*") for size, share in shown.items() if size in measured} == {
        size: part < 1.0 for size, part in measured.items() if size in shown
    }
    assert {share.endswith("*") for share in shown.values()} == {True, False}
    assert "* Estimated by a fitted model" in gt.page.to_text(advice)
    measured = gt.plan.advise(log, gt.plan.Limits(budget=1024, max_group_size=8))
    assert "* Estimated by a fitted model" not in gt.page.to_text(measured)
