"""Plans what a batch reads, on the driver, and reads it, on executors."""
