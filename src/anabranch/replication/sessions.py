"""Which links are used, with whom, and when a link is given up.

A session begins when both sides have finished the handshake (:mod:`handshake`). It ends when the
connection is lost or silent, when one side refuses something, or when the other region is in
another epoch, was removed, or was set back. A link that is refused ends with a
:class:`~frames.Bye`, which gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.keyspace.replica import epoch_of
from anabranch.replication import frames
from anabranch.replication.digest_exchange import DigestExchange
from anabranch.replication.frames import Bye, Reason, Refusal
from anabranch.replication.gossip import Gossip
from anabranch.replication.handshake import Handshaker
from anabranch.replication.interface import Address
from anabranch.replication.links import Links
from anabranch.replication.peer import DELAY_MS_MAX, Backoff, PeerSession, Stage
from anabranch.replication.receiving import Receiver
from anabranch.replication.sending import Sender

SILENT_MS: Final = 5000.0
"""A link is given up after a silence of this length."""

HANDSHAKE_MS: Final = 10_000.0
"""A handshake that this region began is given up after this."""

STRANGERS_MS: Final = 1000.0
"""The least interval of two reports of refusals with sides that have proved nothing."""

HALF_OPEN_MS: Final = 2000.0
"""Two heartbeats: from then on another link to the same region takes precedence."""

UNSPOKEN: Final = frozenset(
    {Reason.DUPLICATE, Reason.STOPPING, Reason.ELSEWHERE, Reason.SILENT, Reason.HEARD}
)
"""Reasons of a BYE that are not reported."""

UNANSWERED: Final = frozenset({0, Reason.STOPPING, Reason.SILENT})
"""Reasons for which the end of a handshake is the same as no answer; 0 is a lost connection."""


NO_REGION: Final = (
    "no region has answered there. join names the gossip port of a region, which is its port plus "
    "10000 unless gossip-port is set; and tls-replication must be the same in both"
)
"""The remedy if a connection was made and nothing but silence came."""


class Sessions:
    """Begins and ends the sessions of one region. Times are in ms of a clock that never jumps."""

    def __init__(
        self,
        links: Links,
        sender: Sender,
        receiver: Receiver,
        gossip: Gossip,
        digest_exchange: DigestExchange,
    ) -> None:
        self._links = links
        self._local = links.local
        self._sender = sender
        self._receiver = receiver
        self._gossip = gossip
        self._digest_exchange = digest_exchange
        self.handshaker = Handshaker(links, self._up)
        self.dialler = Dialler(links, self.handshaker.region_at)

    # -- links ------------------------------------------------------------------------------------

    def link_up(
        self,
        link: int,
        now_ms: float,
        dialled: Address | None,
        names: frozenset[str] | None = None,
    ) -> None:
        """A connection was made; ``dialled`` is its address if this region dialled.

        ``names`` are those in the certificate of the other side; None without a certificate.
        """
        session = PeerSession(link, Stage.HELLO, dialled, now_ms, names)
        if dialled is None:
            self._links.sessions[link] = session
            return
        self.dialler.connected(dialled)
        expected = self.handshaker.region_at(dialled)
        if expected is not None and self._links.session_of(expected) is not None:
            self._links.transport.close(link)  # the other side was faster
            return
        self._links.sessions[link] = session
        self.handshaker.start(session, expected, now_ms)

    def link_down(self, link: int, now_ms: float) -> None:
        """A connection has ended; nothing may be sent over it any more."""
        session = self._links.sessions.get(link)
        if session is not None:
            self._end(session, now_ms, "the connection was lost")

    def dial_failed(self, host: str, port: int, now_ms: float, why: str) -> None:
        """A dial has failed; ``why`` is the reason for operators."""
        self.dialler.failed((host, port), now_ms, why)

    def stop(self) -> None:
        """Close all links in order. No method may be called afterwards."""
        for session in self._links.sessions.values():
            self._links.send(session, frames.Bye(Reason.STOPPING, "this region stops"))
            self._links.transport.close(session.link)
        self._links.sessions.clear()
        self._links.peers.clear()

    # -- beginnings -------------------------------------------------------------------------------

    def _up(self, session: PeerSession, now_ms: float) -> None:
        """The handshake is complete: begin the session, unless a better link exists."""
        links = self._links
        theirs = session.theirs
        assert theirs is not None
        peer = links.peer(theirs.region)
        existing = peer.session
        if existing is not None:
            if self._is_better(existing, session, now_ms):
                raise Refusal(Reason.DUPLICATE, "there is another link between these regions")
            self.refuse(existing.link, Refusal(Reason.DUPLICATE, "another link is used"), now_ms)
        session.stage = Stage.UP
        session.region = theirs.region
        session.replica_id = theirs.replica_id
        session.up_ms = now_ms
        peer.session = session
        # A region without a cluster in an epoch that may have ended: its disk was lost.
        if theirs.cluster_id or theirs.epoch > max(links.membership.known_epoch(theirs.region), 0):
            peer.run_id = theirs.run_id
        peer.counters.connects += 1
        links.membership.moved(theirs.region, theirs.host, theirs.port)
        links.membership.learn([theirs.replica_id])
        if existing is None:
            links.local.report_event("reachable", region=theirs.region, name=theirs.name)
        self._receiver.link_up(session)
        self._gossip.send_due(now_ms)

    def _is_better(self, existing: PeerSession, new: PeerSession, now_ms: float) -> bool:
        """Whether an existing link stays. Both sides decide alike, whichever comes first there.

        Of two simultaneous dials the one of the lower region number stays. But a region that dials
        although it has a link has lost that link: it is another process, or dials again, or the old
        link is silent.
        """
        assert existing.theirs is not None
        assert new.theirs is not None
        if (
            existing.theirs.run_id != new.theirs.run_id
            or (existing.dialled is None) == (new.dialled is None)
            or now_ms - existing.heard_ms >= HALF_OPEN_MS
        ):
            return False
        return (existing.dialled is not None) == (self._links.region < existing.region)

    # -- ends -------------------------------------------------------------------------------------

    def bye(self, session: PeerSession, message: Bye, now_ms: float) -> None:
        """A BYE: the other side closes the link."""
        self._links.transport.close(session.link)
        self._report_refusal(session, message.reason, message.text, now_ms, by="them")
        retry_after_ms = min(message.retry_after_ms, DELAY_MS_MAX)
        if message.ask is not None and session.stage is Stage.MEMBERS:  # its proof was checked
            self.dialler.recommend(message.ask)
        if message.reason == Reason.REMOVED:
            retry_after_ms = DELAY_MS_MAX
            if session.stage is Stage.UP:  # its proof was checked
                self._links.expelled(message.text)
        if message.reason == Reason.SET_BACK and session.stage is Stage.UP:
            self._links.set_back(message.text)
        self._end(session, now_ms, message.text, message.reason, retry_after_ms)

    def refuse(self, link: int, refusal: Refusal, now_ms: float) -> None:
        """Close a link with a BYE that gives the reason."""
        session = self._links.sessions.get(link)
        if session is None:
            return
        bye = frames.Bye(refusal.reason, refusal.text[:1000], refusal.retry_after_ms, refusal.ask)
        self._links.send(session, bye)
        self._links.transport.close(link)
        self._report_refusal(session, refusal.reason, refusal.text, now_ms, by="us")
        self._end(session, now_ms, refusal.text, refusal.reason, refusal.retry_after_ms)

    def _end(
        self,
        session: PeerSession,
        now_ms: float,
        why: str,
        reason: int = 0,
        retry_after_ms: float = 0,
    ) -> None:
        """Forget a link, and everything that was in progress over it."""
        links = self._links
        del links.sessions[session.link]
        peer = links.peers.get(session.region)
        if peer is not None and peer.session is session:
            peer.session = None
            self._receiver.end(session, now_ms)
            self._sender.end(session, now_ms)
            self._digest_exchange.end(session)
            if reason == Reason.DUPLICATE:
                return
            healthy_ms = now_ms - session.up_ms
            peer.backoff.lost(now_ms, healthy_ms, links.chance, retry_after_ms)
            links.local.report_event("unreachable", **links.named(peer.region), why=why)
        elif session.dialled is not None and reason != Reason.DUPLICATE:
            region = self.handshaker.region_at(session.dialled)
            if reason == Reason.SILENT and region is not None:
                links.report_once("unreachable", region, now_ms, **links.named(region), why=why)
            self.dialler.wait(session.dialled, now_ms, retry_after_ms)
            if reason in UNANSWERED:
                if session.stage is Stage.WELCOME and reason != Reason.STOPPING:
                    why = f"{why}: {NO_REGION}"
                self.dialler.record_failure(session.dialled, now_ms, why)

    def _report_refusal(
        self, session: PeerSession, reason: int, text: str, now_ms: float, by: str
    ) -> None:
        if reason not in UNSPOKEN:
            region = session.region or (session.theirs.region if session.theirs else 0)
            line = "".join(each if each.isprintable() else "?" for each in text)
            is_stranger = session.dialled is None and session.stage is not Stage.UP
            if is_stranger and by == "them":
                by = "a side that has proved nothing"
            self._links.refusal = f"region {region}: {line} (refused by {by})"
            if region in self._links.peers and not (is_stranger and by != "us"):
                self._links.peers[region].refusal = self._links.refusal
                self._links.peers[region].counters.refusals += 1
            self._links.report_rarely(
                "refused", None if is_stranger else (region, session.dialled), now_ms,
                STRANGERS_MS if is_stranger else 0,
                region=region, reason=reason, text=text, by=by,
            )  # fmt: skip

    # -- reasons to end sessions ------------------------------------------------------------------

    def end_silent(self, now_ms: float) -> None:
        """End sessions on which nothing was heard for :data:`SILENT_MS`.

        And those of a dial whose handshake takes too long: frames of unknown types mean nothing.
        The transport gives links that others have dialled a deadline.
        """
        for session in list(self._links.sessions.values()):
            if now_ms - session.heard_ms >= SILENT_MS:
                text = f"nothing was heard for {SILENT_MS / 1000:g} s"
            elif (
                session.dialled is not None
                and session.stage is not Stage.UP
                and now_ms - session.began_ms >= HANDSHAKE_MS
            ):
                text = f"the handshake was not over after {HANDSHAKE_MS / 1000:g} s"
            else:
                continue
            self.refuse(session.link, Refusal(Reason.SILENT, text), now_ms)

    def end_if_set_back(self, now_ms: float) -> None:
        """A region that was set back ends the links that it has."""
        for session in self._links.up():
            try:
                self._links.refuse_if_set_back()
            except Refusal as refusal:
                self.refuse(session.link, refusal, now_ms)

    def follow_epochs(self, now_ms: float) -> None:
        """End sessions with former epochs of regions, and forget their batches."""
        membership = self._links.membership
        if not membership.has_changed:
            return
        membership.has_changed = False
        for session in self._links.up():
            if membership.is_former(session.replica_id):
                epoch = membership.known_epoch(session.region)
                text = f"region {session.region} is in epoch {epoch} by now"
                self.refuse(session.link, Refusal(Reason.EPOCH, text), now_ms)
        self._receiver.drop_ended_epochs()

    def follow_removals(self, now_ms: float, *, is_behind: bool = False) -> None:
        """End sessions with removed regions, and all if this region was removed."""
        membership = self._links.membership
        if membership.notice_removals():
            self._receiver.drop_ended_epochs()
        is_left = membership.is_left(is_behind=is_behind)
        if is_left:
            self._links.expelled(f"region {self._links.region} was removed from the cluster")
        for session in self._links.up():
            if membership.was_removed(session.region):
                text = f"region {session.region} was removed from the cluster"
                self.refuse(session.link, Refusal(Reason.REMOVED, text), now_ms)
            elif is_left:
                text = f"region {self._links.region} was removed from the cluster"
                self.refuse(session.link, Refusal(Reason.STOPPING, text), now_ms)

    def begin_own_epoch(self, now_ms: float) -> None:
        """This region has opened a new epoch: end all links, so that new handshakes show it."""
        self._links.replica_id = self._local.replica.own
        for link in list(self._links.sessions):
            self.refuse(link, Refusal(Reason.EPOCH, "this region begins a new epoch"), now_ms)
        self._links.membership.learn([self._links.replica_id])
        self._receiver.drop_ended_epochs()
        self._sender.restart()


# -- dialling -------------------------------------------------------------------------------------
#
# Which regions are dialled, and when again.
#
# A region dials members to which it has no link, or, if it has no cluster, the configured members.
# It also dials removed regions from time to time: two regions may have removed each other, each on
# its side of a partition. Without a link neither would notice, and both would go on writing.

DIAL_TIMEOUT_MS: Final = 10_000.0
"""A dial without an answer is forgotten after this."""

REMOVED_MS: Final = 10_000.0
"""The pause between two dials of a removed region."""


class Dialler:
    """Dials in progress, and addresses that must wait. Times are in ms."""

    def __init__(self, links: Links, region_at: Callable[[Address], int | None]) -> None:
        """``region_at`` returns the region that has an address."""
        self._links = links
        self._region_at = region_at
        self._under_way: dict[Address, float] = {}  # since when
        self._seeds: dict[Address, Backoff] = {}
        self._recommended: set[Address] = set()
        self._failures: dict[Address, tuple[int, str]] = {}  # of those we may join by, in a row

    def recommend(self, address: Address) -> None:
        """A member named the address of the region that admits others."""
        if not self._links.local.replica.cluster_id:
            self._recommended.add(address)

    def connected(self, address: Address) -> None:
        """The dial of an address has succeeded."""
        self._under_way.pop(address, None)

    @property
    def tries(self) -> str:
        """The members that did not admit this region, and the reasons."""
        return ", ".join(
            f"{host}:{port} ({why}; {count} {'try' if count == 1 else 'tries'})"
            for (host, port), (count, why) in self._failures.items()
        )

    def failed(self, address: Address, now_ms: float, why: str) -> None:
        """The address did not answer; ``why`` is the reason for operators."""
        self._under_way.pop(address, None)
        if address in self._recommended and not self._links.local.replica.cluster_id:
            self._recommended.clear()
            if not epoch_of(self._links.replica_id):
                # Any member can admit this region unless it could be confused with another server.
                self._links.outlived(0)
        self.wait(address, now_ms)
        self.record_failure(address, now_ms, why)

    def record_failure(self, address: Address, now_ms: float, why: str) -> None:
        """Report a failed attempt to be admitted."""
        if self._links.local.replica.cluster_id:
            return
        count = self._failures.get(address, (0, ""))[0] + 1
        self._failures[address] = count, why
        backoff = self._seeds.get(address)
        again_ms = 0.0 if backoff is None else max(0.0, backoff.next_ms - now_ms)
        self._links.local.report_event(
            "join_failed",
            address=f"{address[0]}:{address[1]}",
            reason=why,
            tries=count,
            again_in_s=round(again_ms / 1000, 1),
        )

    def wait(self, address: Address, now_ms: float, at_least_ms: float = 0) -> None:
        """Do not dial an address again at once."""
        region = self._region_at(address)
        if region is None and self._links.local.replica.cluster_id:
            at_least_ms = max(at_least_ms, REMOVED_MS)
        backoff = self._seeds.get(address) if region is None else self._links.peer(region).backoff
        if backoff is not None:
            backoff.failed(now_ms, self._links.chance, at_least_ms)

    def dial_due(self, now_ms: float) -> None:
        """Dial the regions without a link that were not tried a moment ago."""
        for address, since_ms in list(self._under_way.items()):
            if now_ms - since_ms >= DIAL_TIMEOUT_MS:
                self.failed(address, now_ms, f"no answer within {DIAL_TIMEOUT_MS / 1000:g} s")
        for address, backoff in self._wanted().items():
            if address not in self._under_way and now_ms >= backoff.next_ms:
                self._under_way[address] = now_ms
                self._links.transport.dial(*address)

    def _wanted(self) -> dict[Address, Backoff]:
        """The addresses of regions that have neither a link nor a dial in progress."""
        links = self._links
        making = {session.dialled for session in links.sessions.values() if session.dialled}
        if not links.local.replica.cluster_id:
            addresses = [*links.config.join, *self._recommended]
            seeds = {seed: self._seeds.setdefault(seed, Backoff()) for seed in addresses}
            return {} if making else seeds
        if not links.membership.is_member(links.region):
            return {}
        removed = links.membership.to_look_for()
        wanted = {each: self._seeds.setdefault(each, Backoff()) for each in removed}
        wanted |= {
            address: links.peer(region).backoff
            for region in links.membership.others()
            if links.session_of(region) is None
            and (address := links.membership.address(region)) not in making
        }
        return wanted
