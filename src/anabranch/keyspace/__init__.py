"""Databases of keys: expiry, scanning, blocked commands. Pure."""
