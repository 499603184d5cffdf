"""How regions exchange what they write: a state machine without sockets, files, clock or chance.

Read :mod:`interface` for what it needs, :mod:`frames` for what is said, then
:mod:`replicator`, the face. :mod:`sending` and :mod:`receiving` move effects, :mod:`gossip` tells
how far everybody is, :mod:`handshake_checks` and :mod:`membership` know who everybody is.
"""
