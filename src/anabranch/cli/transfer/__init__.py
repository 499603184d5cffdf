"""Carrying keys from one place to another: what ``anabranch import`` and ``export`` share.

A *source* (:mod:`.file_source`, :mod:`.sync`, :mod:`.scan`) yields records, a *target*
(:mod:`.live_target`, :mod:`.file_target`) takes them, :mod:`.carry` decides about each on the way,
and :mod:`.summary` tells what came of it. redis-py is imported by those that need a client.
"""
