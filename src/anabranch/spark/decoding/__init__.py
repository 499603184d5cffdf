"""From replies of servers to Arrow columns."""
