"""Mending a key: another region's version of it is taken over.

That must not undo what the other side has not seen yet, nor miss what it has seen and we have not.
So its version counts when both have applied the same effects on the key. Usually that is so at
once; a key that is being written is fetched again, or waited for, a few seconds long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from anabranch.errors import AnabranchError
from anabranch.keyspace.inquiry import Inquiry
from anabranch.keyspace.version_vectors import covers
from anabranch.replication.digest_exchange import comparable
from anabranch.replication.frames import FullSyncBegin, FullSyncGet, Place
from anabranch.replication.links import Links
from anabranch.replication.peer import Session
from anabranch.scheduling import in_one_go

__all__ = ["Repair", "Repairs"]

PATIENCE_MS: Final = 10_000.0
"""A key that does not come to rest for so long is not repaired."""

AGAIN_MS: Final = 100.0
"""A version that is too old is replaced by a newer one after this."""


@dataclass(slots=True)
class Repair:
    """A key, whose version of it is wanted, and how far that is."""

    session: Session
    place: Place
    inquiry: Inquiry
    until_ms: float
    is_staged: bool = False
    """Whether the version is here as a whole."""
    again_ms: float = 0.0
    """When it is to be asked for again; 0 while it is on its way, or can be used."""
    vector: dict[int, int] = field(default_factory=dict)
    """What the other side had applied, and the last effects on the key among that."""
    last_effects: dict[int, int] = field(default_factory=dict)

    def ask(self, links: Links) -> None:
        """Ask for the key as it is there now."""
        self.is_staged = False
        self.again_ms = 0.0
        links.send(self.session, FullSyncGet(dict(links.local.vector), [self.place]))

    def begun(self, message: FullSyncBegin) -> None:
        """It is coming."""
        self.vector, self.last_effects = message.vector, message.last_effects


class Repairs:
    """Repairs that were asked for."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._waiting: list[Repair] = []

    def order(self, session: Session, place: Place, now_ms: float) -> Inquiry:
        """Take over a key from a region, as soon as that is possible."""
        inquiry = Inquiry()
        self._waiting.append(Repair(session, place, inquiry, now_ms + PATIENCE_MS))
        return inquiry

    def next(self, now_ms: float) -> Repair | None:
        """The one to begin with, which then is at the head until it is over."""
        return self._waiting[0] if self._waiting else None

    def end(self, session: Session) -> None:
        """A link is gone."""
        for repair in list(self._waiting):
            if repair.session is session:
                self._finish(repair, "the connection was lost")

    def go_on(self, repair: Repair, now_ms: float) -> bool:
        """See whether what has come can be used; whether the repair is over."""
        links = self._links
        if repair.is_staged and not repair.again_ms:
            ours, last_effects = (
                links.local.vector,
                links.local.digests.last_effects_on_key(repair.place),
            )
            if comparable(ours, last_effects, repair.vector, repair.last_effects):
                return self._use(repair)
            if covers(ours, repair.last_effects):
                repair.again_ms = now_ms + AGAIN_MS  # ours has later effects than theirs
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
        repair.inquiry.problem = problem
        repair.inquiry.is_done = True
