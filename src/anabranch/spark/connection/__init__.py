"""Connections to servers, and the names of their regions."""
