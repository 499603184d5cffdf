"""The same random commands to a Redis server and to ours, replies compared."""
