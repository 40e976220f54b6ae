"""Simulation on chains: responses are drawn token by token, because a chain lists none of them.

`walks` draws, `weighing` adds up the tokens of what was drawn, `gradients` and `training` are the two simulators.
"""
