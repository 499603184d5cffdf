"""All data of one process and its rules, without I/O; the server or the simulator drives it."""
