"""Programs that change what regions send each other, and look what is made of it.

    python -m tests.fuzzing --minutes 60                # all of them in turn, fresh cases
    python -m tests.fuzzing.batches --cases 1000000
    python -m tests.fuzzing.gossip --cases 1000000
    python -m tests.fuzzing.full_syncs --cases 100000

Every case follows from a seed and its number, which a failure names. `make test` runs a few
thousand.
"""
