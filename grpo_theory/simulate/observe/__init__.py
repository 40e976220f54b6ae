"""Covectors to errors, powers and gains of gradient estimates, and to their moments.

`errors` adds up a batch, by `pairs` of groups or in other ways, against the `truth`; `moments` summarises replications.
"""
