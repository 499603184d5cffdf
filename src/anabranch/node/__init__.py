"""One process without sockets, files, threads or clock: what the server and the simulator drive."""
