"""Histories of clients of three real regions under faults, checked by an engine that is not ours.

The histories are written as JSON that Jepsen's Elle reads (through elle-cli). Elle, Knossos and
Porcupine are in none of PyPI, npm and Debian, so the rules of a paper are checked by clingo, a
solver from PyPI: see ``rules.lp``.
"""
