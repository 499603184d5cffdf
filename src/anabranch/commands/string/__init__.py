"""Strings: SET, GET, INCR and similar commands."""
