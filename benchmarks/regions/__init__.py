"""Regions on one machine: how far behind they are, how they catch up, and what that costs.

Reading order: `cluster` runs regions as real processes, `figures` is what a measurement returns,
`goals` what is expected of it. `latency`, `catching_up`, `cost`, `traffic` and `weight` measure,
`catalogue` lists them all, `report` writes them down, and `__main__` is the command line.
"""
