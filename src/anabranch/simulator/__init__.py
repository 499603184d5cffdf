"""A whole cluster in virtual time: real processes with simulated clocks, network and disks.

Everything follows from a seed, so that a run can be repeated to the byte. Read :mod:`simulation`
first, which describes a run; then :mod:`machine`, a machine and the process on it; :mod:`checks`,
the invariants; :mod:`faults`, the faults.
"""
