"""Mutations of the core: each changes one operator, number or statement, and a test must notice.

Tools that exist were tried on paper first. mutmut has no samples by seed and replaces each function
by a trampoline; cosmic-ray writes each mutation into the file and starts a test command for it, and
the start takes longer than the tests that notice. Here a mutation exists only in the process that
tests it, and only tests that reach it run.
"""
