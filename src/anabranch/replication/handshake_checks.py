"""The checks of the handshake: versions, facts, certificate names, and proofs of the secret.

A proof is an HMAC-SHA256 over both halves of the handshake as they were sent, so that nobody can
exchange a part of them. It differs by side, so that nobody can send a proof back. The secret itself
is never sent. The side that dialled proves first, so that a stranger who only connects gets nothing
from which to guess the secret. Frames after the proofs are sealed (:mod:`sealing`). Before the
proofs only the protocol version, and whether there is a secret, are checked.

In version 1 the WELCOME contained the proof, and nothing was sealed. Regions without a secret still
speak version 1, regions with a secret do not.
"""

from __future__ import annotations

import hashlib
import hmac

from anabranch.replication.frames import MODULUS, Hello, Reason, Refusal
from anabranch.replication.interface import ReplicationConfig
from anabranch.replication.membership import Membership

SEALED_SINCE = 2
"""The first protocol version in which the side that dialled proves first, and frames are sealed."""

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


def spoken(config: ReplicationConfig) -> tuple[int, int]:
    """The lowest and the highest supported protocol version."""
    low, high = config.protocol
    return (max(low, SEALED_SINCE) if config.secret else low), high


def check_version(theirs: Hello, config: ReplicationConfig) -> None:
    """Refuse a side that shares no protocol version with this one."""
    low, high = spoken(config)
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
