"""A whole cluster in virtual time: real regions, logs and replicators; simulated everything else.

Clocks, network, disks and faults are made up from a seed, so that a run can be repeated to the
byte. Read :mod:`simulation` first: it says what happens in a run; then :mod:`node`, one region with
its disk; :mod:`checks`, what must hold; :mod:`faults`, what goes wrong.
"""
