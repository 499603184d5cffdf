"""What several regions promise together, checked from outside the code that keeps it."""
