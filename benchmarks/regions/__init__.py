"""Regions on one machine: how far behind they are, how they catch up, and what that costs.

Reading order: `cluster` runs regions as real processes, `goals` is what is expected of the figures.
`latency`, `catching_up`, `cost`, `traffic` and `weight` measure, `catalogue` lists them all, and
`__main__` is the command line.
"""
