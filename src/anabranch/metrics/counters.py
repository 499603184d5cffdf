"""Counters of the exchange with one other region."""

from __future__ import annotations

from anabranch.compiling import mypyc_attr


@mypyc_attr(acyclic=True)
class Counters:
    """What only grows, per peer, since the start."""

    __slots__ = (
        *("catch_up_cause", "checksum_errors", "connects", "duplicates", "fetches"),
        *("failed_partial_catch_ups", "full_catch_ups", "partial_catch_ups"),
        *("received_bytes", "received_raw_bytes"),
        *("refusals", "relayed_bytes", "sent_bytes", "sent_raw_bytes", "served_fetches"),
    )

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.received_bytes = 0
        self.sent_raw_bytes = 0
        """The same, with batches as they were before they were compressed."""
        self.received_raw_bytes = 0
        self.connects = 0
        self.fetches = 0
        """FETCH frames sent to it."""
        self.served_fetches = 0
        self.relayed_bytes = 0
        """Batches of others that it has sent us."""
        self.duplicates = 0
        self.checksum_errors = 0
        self.refusals = 0
        """Links that one side has ended because of what the other one had sent, or is."""
        self.full_catch_ups = 0
        self.partial_catch_ups = 0
        self.failed_partial_catch_ups = 0
        """Its log did not reach back to what we asked for."""
        self.catch_up_cause = ""
        """Of the latest catch-up."""
