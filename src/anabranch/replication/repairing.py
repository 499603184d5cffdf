"""Repairs a key: this region takes over the version of another region.

The repair must not undo effects that the other region lacks, nor miss effects that this region
lacks. So the version is used only if both regions have applied the same effects on the key. Usually
that is so at once; if the key is being written, the repair fetches it again for a few seconds.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from anabranch.errors import AnabranchError
from anabranch.keyspace.inquiry import Inquiry
from anabranch.keyspace.version_vectors import covers
from anabranch.replication.digest_exchange import comparable
from anabranch.replication.frames import FullSyncBegin, FullSyncGet, Place
from anabranch.replication.links import Links
from anabranch.replication.peer import PeerSession
from anabranch.scheduling import in_one_go

PATIENCE_MS: Final = 10_000.0
"""The deadline of a repair of a key that is written all the time."""

AGAIN_MS: Final = 100.0
"""The time after which a version that is too old is fetched again."""


class Repair(Struct):
    """The repair of one key, and its progress."""

    session: PeerSession
    place: Place
    inquiry: Inquiry
    until_ms: float
    is_staged: bool = False
    """Whether the version has arrived completely."""
    again_ms: float = 0.0
    """When it is requested again; 0 while it is requested, or can be used."""
    vector: dict[int, int] = field(default_factory=dict)
    """What the other side had applied, and its last effects on the key."""
    last_effects: dict[int, int] = field(default_factory=dict)

    def ask(self, links: Links) -> None:
        """Request the present version of the key."""
        self.is_staged = False
        self.again_ms = 0.0
        links.send(self.session, FullSyncGet(dict(links.local.vector), [self.place]))

    def begun(self, message: FullSyncBegin) -> None:
        """The version begins to arrive."""
        self.vector, self.last_effects = message.vector, message.last_effects


class Repairs:
    """Requested repairs, one at a time."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._waiting: list[Repair] = []

    def order(self, session: PeerSession, place: Place, now_ms: float) -> Inquiry:
        """Order the repair of a key from a region."""
        inquiry = Inquiry()
        self._waiting.append(Repair(session, place, inquiry, now_ms + PATIENCE_MS))
        return inquiry

    def next(self, now_ms: float) -> Repair | None:
        """The next repair to begin; it stays first until it ends."""
        return self._waiting[0] if self._waiting else None

    def end(self, session: PeerSession) -> None:
        """A link has ended."""
        for repair in list(self._waiting):
            if repair.session is session:
                self._finish(repair, "the connection was lost")

    def go_on(self, repair: Repair, now_ms: float) -> bool:
        """Use the version that has arrived, if possible; returns whether the repair has ended."""
        links = self._links
        if repair.is_staged and not repair.again_ms:
            ours, last_effects = (
                links.local.vector,
                links.local.digests.last_effects_on_key(repair.place),
            )
            if comparable(ours, last_effects, repair.vector, repair.last_effects):
                return self._use(repair)
            if covers(ours, repair.last_effects):
                repair.again_ms = now_ms + AGAIN_MS  # this region has later effects on the key
        if now_ms >= repair.until_ms:
            self._finish(repair, "the key is written all the time: no moment was found to do it")
            return True
        if repair.again_ms and now_ms >= repair.again_ms:
            repair.ask(links)
        return False

    def _use(self, repair: Repair) -> bool:
        links = self._links
        region = repair.session.region
        db, key = repair.place
        try:
            in_one_go(links.local.load())
            links.local.take_key(db, key)
        except (OSError, AnabranchError) as problem:
            self._finish(repair, str(problem))
            return True
        links.local.report_event(
            "repaired", region=region, name=links.membership.name(region),
            db=db, key=key[:128].decode("utf-8", "backslashreplace"),
        )  # fmt: skip
        self._finish(repair, "")
        return True

    def _finish(self, repair: Repair, problem: str) -> None:
        self._waiting.remove(repair)
        repair.inquiry.end(problem and f"TRYAGAIN {problem}")
