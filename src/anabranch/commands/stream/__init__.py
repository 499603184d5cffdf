"""Streams: X..."""
