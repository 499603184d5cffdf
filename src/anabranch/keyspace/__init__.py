"""Databases of keys: expiry, glob patterns, scanning, blocked commands. Pure."""
