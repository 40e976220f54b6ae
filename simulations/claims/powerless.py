"""Checks whose negative control is known to survive, and why: every other one without power fails a full run."""

FEW_QUESTIONS = "129 questions cannot tell another question's curvature from the printed correlation"
ALIKE = "from these two starts the arm that multiplies does as is claimed of the one that divides"
SAME_SIZE = "with one prompt a step, too, the bound is least at the same whole group size there"

POWERLESS: dict[tuple[str, str], str] = {
    ("dynamic sampling/same prompt", "sequence-shared (G = 2)"): "the two schemes differ by 2% there, and the margin is 5%",
    ("N9/within", "SmolLM2, sampled answers, *, all kinds"): FEW_QUESTIONS,
    ("N9/within", "SmolLM2, sampled answers, *, small sum"): FEW_QUESTIONS,
    ("N9/within", "SmolLM2, sampled answers, *, sum"): FEW_QUESTIONS,
    ("N9/within", "SmolLM2, sampled answers, *, larger"): FEW_QUESTIONS,
    ("N12/deviation", "lm-few-shot, ridge 100, *"): ALIKE,
    ("N12/II", "lm-few-shot, ridge 0.01, sampled"): "the sampled runs do not tell a change of a point from none",
    ("U9/schedules", "mixed, from Constant(8) to Harmonic(60, 4)"): "the runs do not tell the control's loss from none",
    ("U9/bound/universal", "conflict, radius 2"): SAME_SIZE,
    ("U9/bound/universal", "kl-linear, radius 2"): SAME_SIZE,
}
"""By the statement's id and the setting, in which * stands for any text."""
