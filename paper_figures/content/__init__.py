"""The report on the papers' claims: what stands in it besides figures and verdicts."""
