"""The handshake of a link, on both sides, and the admission of new regions to the cluster.

::

    the side that dialled            the other side
    HELLO facts, nonce        ──▶
                              ◀──    WELCOME facts, nonce
    PROOF proof               ──▶
                              ◀──    PROOF proof, if there is a secret
                              ◀──    MEMBERS, if the side that dialled joins

The checks at the end decide what is refused, and compute the proofs. A region that belongs to
no cluster requests admission. The members admit it if its number is free, or if the epoch in which
the number was used has ended.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Final

from anabranch.errors import AnabranchError
from anabranch.keyspace.replica import Member, epoch_of
from anabranch.replication import frames
from anabranch.replication.frames import MODULUS, Hello, MemberRecord, Reason, Refusal, busy
from anabranch.replication.framing import FrameType
from anabranch.replication.interface import Address, ReplicationConfig
from anabranch.replication.links import Links
from anabranch.replication.membership import Membership
from anabranch.replication.peer import PeerSession, Stage
from anabranch.replication.sealing import Seal, keys_of
from anabranch.replication.status_table import ALIVE_MS

NONCE_BYTES: Final = 32

ASK_AGAIN_MS: Final = 1000
"""Within this time a server that is alive sends a row."""


class Handshaker:
    """Runs the handshake of each link; raises :class:`Refusal` where a check fails."""

    def __init__(self, links: Links, on_up: Callable[[PeerSession, float], None]) -> None:
        self._links = links
        self._local = links.local
        self._replica = links.local.replica
        self._config = links.config
        self._on_up = on_up
        self._asked: dict[int, tuple[str, float]] = {}
        """By region number that may be in use: the run ID that last asked for it, and when."""

    def region_at(self, address: Address) -> int | None:
        """The region that has an address."""
        membership = self._links.membership
        if not self._replica.cluster_id:
            return None
        regions = (
            region for region in membership.others() if membership.address(region) == address
        )
        return next(regions, None)

    def start(self, session: PeerSession, expected: int | None, now_ms: float) -> None:
        """Send HELLO on a link that was dialled; ``expected`` is None if any region may answer."""
        session.stage = Stage.WELCOME
        known = -1
        rows = self._links.rows
        # A region that is alive has not lost its epoch.
        if expected is not None and not rows.is_alive(expected, now_ms):
            known = self._links.membership.known_epoch(expected)
        session.hello = frames.packed(self._facts(known))
        self._links.send_raw(session, FrameType.HELLO, session.hello)

    def _facts(self, known_epoch: int, *, removed_you: bool = False) -> Hello:
        config = self._config
        return Hello(
            *config.protocol, self._replica.cluster_id, self._links.region, config.name,
            epoch_of(self._links.replica_id), config.run_id, config.feature_level, MODULUS,
            config.host, config.port, known_epoch, self._links.chance.randbytes(NONCE_BYTES),
            removed_you, bool(config.secret), config.databases,
        )  # fmt: skip

    def hello(self, session: PeerSession, body: bytes, now_ms: float) -> None:
        """A HELLO: another server has dialled this region."""
        theirs = frames.decode(Hello, body)
        session.theirs = theirs
        check_version(theirs, self._config)
        check_secrets(theirs=theirs.has_secret, ours=bool(self._config.secret))
        self._links.refuse_if_set_back()
        if not theirs.cluster_id:
            self._links.refuse_if_expelled()
        session.hello = body
        removed_you = self._links.membership.was_removed(theirs.region)
        known_epoch = self._known_epoch(theirs, now_ms)
        session.facts = frames.packed(self._facts(known_epoch, removed_you=removed_you))
        self._links.send(session, frames.Welcome(session.facts))
        session.stage = Stage.PROOF

    def _known_epoch(self, theirs: Hello, now_ms: float) -> int:
        """The newest epoch of a region, to be reported to that region; -1 for none.

        Neither the epoch in which the region asks again to join, nor the epoch of another server
        with the same number is reported: these are not former epochs.
        """
        membership = self._links.membership
        if self._is_used_by_another(theirs, now_ms):
            return -1
        if theirs.cluster_id:
            return membership.known_epoch(theirs.region)
        peer = self._links.peers.get(theirs.region)
        if peer is not None and peer.run_id == theirs.run_id:
            return -1
        lived = membership.lived_epoch(theirs.region)
        # Members that do not reach each other may assign a number twice. Only one of them assigns
        # it as an unused number; the others make the new region open another epoch.
        return lived if lived >= 0 or self._reaches_registrar() else 0

    def _registrar(self) -> int:
        """The member that assigns region numbers: the one with the lowest number."""
        return min(self._replica.members, default=self._links.region)

    def _reaches_registrar(self) -> bool:
        registrar = self._registrar()
        return registrar == self._links.region or self._links.session_of(registrar) is not None

    def _is_used_by_another(self, theirs: Hello, now_ms: float) -> bool:
        """Whether another server uses this region number in a later epoch, or at all on a join."""
        links = self._links
        peer = links.peers.get(theirs.region)
        if peer is None or peer.run_id == theirs.run_id:
            return False
        if not links.rows.is_alive(theirs.region, now_ms):
            return False
        return (
            not theirs.cluster_id or links.rows.rows[theirs.region].replica_id > theirs.replica_id
        )

    def _check_facts(
        self, session: PeerSession, theirs: Hello, expected: int | None, now_ms: float
    ) -> None:
        membership = self._links.membership
        is_used = self._is_used_by_another(theirs, now_ms)
        try:
            check_databases(theirs, self._config)
            check_facts(theirs, self._replica.cluster_id, membership, expected)
        except Refusal as refusal:
            if refusal.reason == Reason.EPOCH and is_used:
                raise self._in_use(theirs, now_ms) from None
            raise
        check_names(theirs, session.names, membership)
        if is_used:
            raise self._in_use(theirs, now_ms)

    def _in_use(self, theirs: Hello, now_ms: float) -> Refusal:
        """The refusal if another server has this number, or had it until a moment ago.

        A region that returns with an empty disk asks while others still remember its last process.
        """
        region = theirs.region
        run_id, asked_ms = self._asked.get(region, ("", 0.0))
        if run_id != theirs.run_id:
            asked_ms = now_ms
            self._asked[region] = theirs.run_id, asked_ms
        session = self._links.session_of(region)
        heard_ms = max(
            self._links.rows.heard_ms.get(region, 0.0), 0.0 if session is None else session.heard_ms
        )
        if heard_ms <= asked_ms:
            return Refusal(
                Reason.HEARD,
                f"a server with the number {region} was heard of a moment ago",
                ASK_AGAIN_MS,
            )
        return Refusal(
            Reason.REGION,
            f"the number {region} is taken by another server: choose one that is free",
            ALIVE_MS,
        )

    def welcome(self, session: PeerSession, message: frames.Welcome, now_ms: float) -> None:
        """A WELCOME: the facts of the other side."""
        theirs = frames.decode(Hello, message.facts)
        session.theirs = theirs
        session.facts = message.facts
        check_version(theirs, self._config)
        check_secrets(theirs=theirs.has_secret, ours=bool(self._config.secret))
        secret = self._config.secret
        if not secret:
            self._go_on(session, theirs, now_ms)
            return
        proof = proof_of(secret, b"proof", session.hello, session.facts)
        self._links.send(session, frames.Proof(proof))
        session.sealing = Seal(keys_of(secret, session.hello, session.facts)[0])
        session.stage = Stage.CONFIRMATION

    def confirmation(self, session: PeerSession, message: frames.Proof, now_ms: float) -> None:
        """The proof of the side that this region dialled."""
        secret = self._config.secret
        check_proof(message.proof, secret, b"welcome", session.hello, session.facts)
        session.opening = Seal(keys_of(secret, session.hello, session.facts)[1])
        assert session.theirs is not None
        self._go_on(session, session.theirs, now_ms)

    def _go_on(self, session: PeerSession, theirs: Hello, now_ms: float) -> None:
        """Check the facts of the side that this region dialled, after its proof."""
        expected = None if session.dialled is None else self.region_at(session.dialled)
        self._check_removals(theirs, now_ms)
        self._check_facts(session, theirs, expected, now_ms)
        self._check_own_epoch(theirs)
        if not self._config.secret:
            self._links.send(session, frames.Proof(b""))
        if self._replica.cluster_id:
            self._on_up(session, now_ms)
        else:
            session.stage = Stage.MEMBERS

    def _check_removals(self, theirs: Hello, now_ms: float) -> None:
        """Report that two regions have removed each other: an operator has to decide."""
        links, region = self._links, theirs.region
        if (
            not links.membership.was_removed(region)
            or theirs.cluster_id != self._replica.cluster_id
        ):
            return
        if theirs.removed_you:
            links.report_once("removed_each_other", region, now_ms, region=region, name=theirs.name)
        else:
            links.membership.met(region)

    def proof(self, session: PeerSession, message: frames.Proof, now_ms: float) -> None:
        """The proof of the side that dialled."""
        theirs = session.theirs
        assert theirs is not None
        cluster_id = self._replica.cluster_id
        secret = self._config.secret
        check_proof(message.proof, secret, b"proof", session.hello, session.facts)
        if secret:
            dialled, answered = keys_of(secret, session.hello, session.facts)
            session.opening = Seal(dialled)
            proof = proof_of(secret, b"welcome", session.hello, session.facts)
            self._links.send(session, frames.Proof(proof))
            session.sealing = Seal(answered)
        self._check_facts(session, theirs, None, now_ms)
        if not cluster_id:
            raise Refusal(
                Reason.UNKNOWN, "this region has not joined a cluster yet", UNKNOWN_RETRY_MS
            )
        self._check_own_epoch(theirs)
        if not theirs.cluster_id:
            self._admit(session, theirs, now_ms)
        self._on_up(session, now_ms)

    def _check_own_epoch(self, theirs: Hello) -> None:
        """Refuse the link if the other side knows a later epoch of this region.

        A region that has not joined yet has no former epoch; if others know one, its disk was lost.
        """
        own = epoch_of(self._links.replica_id)
        if theirs.known_epoch > own or (not self._replica.cluster_id and theirs.known_epoch == own):
            self._links.outlived(theirs.known_epoch)
            raise Refusal(
                Reason.EPOCH,
                f"region {self._links.region} has used epoch {theirs.known_epoch} already",
            )

    def _admit(self, session: PeerSession, theirs: Hello, now_ms: float) -> None:
        """Admit a region that has requested it."""
        links, local = self._links, self._local
        for region, each in local.replica.members.items():
            if each.name == theirs.name and region != theirs.region:
                raise Refusal(
                    Reason.REGION,
                    f"region {region} has the name {each.name}: choose another region-name",
                    ALIVE_MS,
                )
        peer = links.peer(theirs.region)
        if peer.run_id != theirs.run_id:
            if peer.session is not None:
                raise self._in_use(theirs, now_ms)
            known = links.membership.lived_epoch(theirs.region)
            registrar = self._registrar()
            if known < 0 and not theirs.epoch and registrar != links.region:
                if links.session_of(registrar) is None:
                    raise busy(f"region {registrar} has just disconnected")
                raise Refusal(
                    Reason.ELSEWHERE,
                    f"region {registrar} gives numbers away",
                    ask=links.membership.address(registrar),
                )
            if theirs.epoch <= known:
                raise Refusal(
                    Reason.EPOCH, f"region {theirs.region} has used epoch {known} already"
                )
        member = Member(theirs.name, theirs.host, theirs.port)
        if local.replica.members.get(theirs.region) != member:
            try:
                local.admit(theirs.region, *member)
            except (OSError, AnabranchError) as problem:
                raise busy(f"cannot admit: {problem}") from None
        peer.run_id = theirs.run_id
        members = [
            MemberRecord(region, known.name, *links.membership.address(region))
            for region, known in local.replica.members.items()
        ]
        removed = list(local.replica.removed.items())
        links.send(session, frames.Members(local.replica.cluster_id, members, removed))

    def members(self, session: PeerSession, message: frames.Members, now_ms: float) -> None:
        """The member that was asked has admitted this region, and sends its members."""
        members = {m.region: Member(m.name, m.host, m.port) for m in message.members}
        assert session.theirs is not None
        if not message.cluster_id or not {self._links.region, session.theirs.region} <= set(
            members
        ):
            raise Refusal(Reason.PROTOCOL, "an admission without a cluster, or without us")
        try:
            self._local.enter(message.cluster_id, members, dict(message.removed))
        except (OSError, AnabranchError) as problem:
            raise busy(f"cannot join: {problem}") from None
        self._local.report_event("entered", cluster_id=message.cluster_id)
        self._on_up(session, now_ms)


# -- checks ---------------------------------------------------------------------------------------
#
# The checks of the handshake: versions, facts, certificate names, and proofs of the secret.
#
# A proof is an HMAC-SHA256 over both halves of the handshake as they were sent, so that nobody can
# exchange a part of them. It differs by side, so that nobody can send a proof back. The secret
# itself is never sent. The side that dialled proves first, so that a stranger who only connects
# gets nothing from which to guess the secret. Frames after the proofs are sealed (:mod:`sealing`).
# Before the proofs only the protocol version, and whether there is a secret, are checked.


UNKNOWN_RETRY_MS = 1000
"""The time that an admission takes to reach this region."""


def proof_of(secret: bytes, side: bytes, hello: bytes, facts: bytes) -> bytes:
    """The proof of one side; empty without a secret."""
    if not secret:
        return b""
    transcript = hashlib.sha256(hello).digest() + hashlib.sha256(facts).digest()
    return hmac.new(secret, b"anabranch " + side + transcript, hashlib.sha256).digest()


def check_proof(proof: bytes, secret: bytes, side: bytes, hello: bytes, facts: bytes) -> None:
    """Refuse a side that does not know the secret, or uses one where none is set."""
    if hmac.compare_digest(proof, proof_of(secret, side, hello, facts)):
        return
    check_secrets(theirs=bool(proof), ours=bool(secret))
    raise Refusal(Reason.SECRET, "the secrets differ")


def check_databases(theirs: Hello, config: ReplicationConfig) -> None:
    """Refuse a side with more or fewer databases: what one accepts the other could not keep."""
    if theirs.databases and config.databases and theirs.databases != config.databases:
        raise Refusal(
            Reason.DATABASES,
            f"there are {config.databases} databases here and {theirs.databases} there: set "
            "databases alike in all regions, and start them again",
        )


def check_secrets(*, theirs: bool, ours: bool) -> None:
    """Refuse a side if only one of both has a secret."""
    if theirs and not ours:
        raise Refusal(Reason.SECRET, "no secret is configured here, but the other side has one")
    if ours and not theirs:
        raise Refusal(Reason.SECRET, "a secret is configured here, and the other side has none")


def check_version(theirs: Hello, config: ReplicationConfig) -> None:
    """Refuse a side that shares no protocol version with this one."""
    low, high = config.protocol
    if theirs.protocol_high < low or theirs.protocol_low > high:
        raise Refusal(
            Reason.VERSION,
            f"no common protocol version: {low} to {high} here, "
            f"{theirs.protocol_low} to {theirs.protocol_high} there",
        )


def check_facts(
    theirs: Hello, cluster_id: str, membership: Membership, expected: int | None
) -> None:
    """Refuse a side that is not the expected region, or not of this cluster.

    A side with an empty cluster ID asks for admission; the admitting member checks whether its
    region number is free.
    """
    region = theirs.region
    if theirs.modulus != MODULUS:
        raise Refusal(
            Reason.MODULUS,
            f"the sequence modulus is {MODULUS} here and {theirs.modulus} there",
        )
    if not cluster_id and not theirs.cluster_id:
        raise Refusal(Reason.CLUSTER, "neither side belongs to a cluster yet", UNKNOWN_RETRY_MS)
    if cluster_id and theirs.cluster_id and cluster_id != theirs.cluster_id:
        raise Refusal(
            Reason.CLUSTER, f"the cluster is {cluster_id} here and {theirs.cluster_id} there"
        )
    if region == membership.region:
        raise Refusal(Reason.REGION, f"both sides are region {region}")
    if expected is not None and region != expected:
        raise Refusal(Reason.REGION, f"region {expected} was dialled, region {region} answered")
    if not cluster_id or not theirs.cluster_id:
        return
    if membership.was_removed(region):
        raise Refusal(Reason.REMOVED, f"region {region} was removed from the cluster")
    if not membership.is_member(region):
        raise Refusal(
            Reason.UNKNOWN, f"region {region} is not known as a member here", UNKNOWN_RETRY_MS
        )
    known = membership.known_epoch(region)
    if theirs.epoch < known:
        raise Refusal(
            Reason.EPOCH, f"region {region} is in epoch {known} by now, not in {theirs.epoch}"
        )


def check_names(theirs: Hello, names: frozenset[str] | None, membership: Membership) -> None:
    """Refuse a side whose certificate does not name its region."""
    if names is None:
        return
    region = theirs.region
    name = membership.name(region) if membership.is_member(region) else theirs.name
    if name.casefold() not in {each.casefold() for each in names}:
        allowed = ", ".join(sorted(names)) or "nobody"
        raise Refusal(Reason.SECRET, f"region {region} is {name}, its certificate is for {allowed}")
