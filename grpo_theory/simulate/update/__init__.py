"""Covectors to the next iterate of training runs.

`ascent` goes along covectors, an `optimiser` may change the step, `iterates` and `trace` keep what is wanted of the runs, and
`advance` is the driver that goes from words to iterates.
"""
