"""Pictures over time."""
