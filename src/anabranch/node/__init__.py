"""One process without sockets, files, threads or clock; the server and the simulator drive it."""
