"""Benchmarks of Anabranch; see README.md in this directory."""
