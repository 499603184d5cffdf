"""Strings: SET, GET, INCR and their kin."""
