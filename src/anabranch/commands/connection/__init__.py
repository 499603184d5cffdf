"""Connections: HELLO, AUTH, SELECT, CLIENT."""
