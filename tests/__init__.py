"""The tests of the project, from pure functions up to real processes."""
