"""Everything one process knows, pure: driven by the server with real sockets and time."""
