"""Lists: LPUSH, LPOP, BLPOP, LMOVE and their kin."""
