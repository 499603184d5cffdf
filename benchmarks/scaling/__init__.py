"""What grows with the data, and what others wait for under load, beside redis-server.

`sizes` lists what may grow and which commands are asked at each size, `stage` starts the servers
and takes the samples, `latency` loads each server with half of what it can do, and `chart` draws
the costs.
"""
