"""The operation log of a region: recovery reads it, and other regions get effects from it."""
