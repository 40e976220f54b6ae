"""Covectors to the next iterate of training runs.

`ascent` takes a step along covectors, and an `optimiser` may change the step.  `iterates` and `trace` keep what is wanted of the
runs.  `advance` is the driver that goes from words to iterates.
"""
