"""Spark on a server on this machine: how fast it reads and writes, beside other ways to do it.

Reading order: `data` fills streams, `local` is the session and the servers, `goals` what is
expected of the figures. `reading`, `writing`, `serving`, `streaming`, `auditing`, `starting` and
`weight` measure, `catalogue` lists them all, and `__main__` is the command line. `naive` is what
the source is compared with.
"""
