"""Lists: LPUSH, LPOP, BLPOP, LMOVE and similar commands."""
