"""Copies keys from one place to another: the common part of ``anabranch import`` and ``export``.

A *source* (:mod:`.file_source`, :mod:`.scan`) yields records, a *target*
(:mod:`.live_target`, :mod:`.file_target`) accepts them, :mod:`.carry` decides about each record,
and :mod:`.summary` reports the result. redis-py is imported only by modules that need a client.
"""
