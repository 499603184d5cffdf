"""Runs requests: sessions, dispatch, the context of commands, users, channels and scripts as data.

Commands import it and it imports no command: a row of the table (:mod:`anabranch.engine.spec`)
brings the function.
"""
