"""Pipelines as functions: each takes a session and typed arguments, and returns a typed result."""
