"""Other papers' theorems, one file for each paper: what estimators climb, exact."""
