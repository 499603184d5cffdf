"""The exchange between regions: a state machine without sockets, files, clock or randomness.

:mod:`interface` declares what it needs, :mod:`frames` the messages, :mod:`replicator` the entry
points. :mod:`sending` and :mod:`receiving` move effects, :mod:`gossip` exchanges status rows,
:mod:`handshake` and :mod:`membership` decide which regions take part.
"""
