"""Replies recorded from real servers, replayed against ours."""
