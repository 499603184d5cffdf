"""Exploration of small worlds: every order of commands, deliveries and faults, in the real code.

No model stands beside the code. :mod:`worlds` are the worlds by name, :mod:`script` the language in
which they and all counterexamples are written. A :class:`~region_run.RegionRun` is the process of
one region; what it does is a function of what reaches it. So :mod:`reactions` runs each of its
reactions once, and :mod:`search` combines the reactions of all regions to states of the world.
"""
