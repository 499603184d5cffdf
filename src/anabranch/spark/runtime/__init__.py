"""Java, sessions, and queries that run."""
