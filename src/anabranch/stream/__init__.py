"""The engine: one stream as a value, pure. Knows nothing of keys, commands, sockets or clocks."""
