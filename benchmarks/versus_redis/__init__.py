"""Anabranch beside redis-server: the same bytes to both, server CPU per operation as a ratio.

Reading order: `servers` starts the two processes and reads what they cost, `load` replays
pre-encoded requests, `workloads` says what is asked, `measure` takes the samples in turns,
`memory` weighs entries, `targets` holds the goals, `report` writes the figures down, and
`__main__` is the command line.
"""
