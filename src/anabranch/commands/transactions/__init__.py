"""Transactions: MULTI, EXEC, DISCARD, WATCH, UNWATCH."""
