"""The digest exchange: regions compare digests of buckets, then of keys, regularly or on request.

Two digests are comparable if both regions had applied the same effects on the keys. One side finds
that out from four version vectors: what each region had applied when it made its digest, and the
last effects on these keys (:mod:`anabranch.keyspace.last_effects`). Digests that are not comparable
are *in flight* and are requested again a little later; a key that is written all the time is
compared when it is not written for one round trip. A difference between comparable digests is a
*divergence*: a fault, which is reported as an alarm.

The side that asks compares; the other side sends its digests. Both sides ask, so both find faults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field

from anabranch.keyspace.equality import DIGEST_BYTES, SLICE, KeyDigests
from anabranch.keyspace.inquiry import DIFFERS, EQUAL, IN_FLIGHT, Verdict
from anabranch.keyspace.last_effects import BUCKETS
from anabranch.replication.frames import (
    Differing,
    DifferingBucket,
    Digests,
    KeyDigest,
    Keys,
    KeysGet,
    Place,
    Reason,
    Refusal,
)
from anabranch.replication.links import Links
from anabranch.replication.peer import PeerSession

RETRY_MS: Final = 100.0
"""The delay of the first repeated request for digests in flight; it doubles each time."""

ATTEMPTS: Final = 5

ANSWER_MS: Final = 60_000.0
"""The deadline of an answer: a version that does not know the request never answers."""

QUESTIONS_MAX: Final = 64
"""Waiting requests of one region; further ones are not answered."""

CANDIDATES_MAX: Final = 1000
"""Keys of one comparison that are compared one by one."""

ALARMS_MAX: Final = 16
"""Keys of one comparison that are reported one by one."""

KEYS_A_FRAME: Final = 1000

KEY_BYTES_A_FRAME = 1 << 20  # not Final: a test of the compiled core lowers it, too
"""Bytes of their names; a single key may have more."""


def comparable(
    ours: Mapping[int, int],
    our_last_effects: Mapping[int, int],
    theirs: Mapping[int, int],
    their_last_effects: Mapping[int, int],
) -> bool:
    """Whether two regions have applied the same effects on a key or bucket.

    The arguments are what each region has applied, and its last effects on the key or bucket.
    """
    for replica_id in {**ours, **theirs}:
        here, there = ours.get(replica_id, 0), theirs.get(replica_id, 0)
        if here > there and our_last_effects.get(replica_id, 0) > there:
            return False
        if there > here and their_last_effects.get(replica_id, 0) > here:
            return False
    return True


class _PeerComparison(Struct):
    """One comparison with one region, of all buckets or of named keys."""

    session: PeerSession
    verdict: Verdict
    since_ms: float
    named: bool
    is_periodic: bool = False
    buckets: list[int] = field(default_factory=lambda: list(range(BUCKETS)))
    """Buckets that were not found equal yet."""
    keys: list[Place] = field(default_factory=list)
    """Keys to be compared one by one."""
    passed: int | None = None
    """The count of refreshed buckets at the beginning; None once all were refreshed."""
    request: int = 0
    """The number of the unanswered request, 0 for none."""
    asked_ms: float = 0.0
    next_ms: float = 0.0
    attempts: int = 0
    vector: dict[int, int] = field(default_factory=dict)
    """What was applied here when the request was sent."""
    asked: list[int] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)
    """Buckets whose keys must be requested."""
    seen: set[Place] = field(default_factory=set)
    """Keys that the answer has named of the first opened bucket."""
    alarms: int = 0


class _Question(Struct):
    session: PeerSession
    message: Digests | KeysGet
    passed: int


class DigestComparison(Struct):
    """The result of the last comparison with a region."""

    at_ms: float
    differing: int
    in_flight: int


class DigestExchange:
    """Asks other regions for digests, and answers them."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._comparisons: list[_PeerComparison] = []
        self._questions: list[_Question] = []
        self._due: dict[int, float] = {}
        self._request = 0
        self.compared: dict[int, DigestComparison] = {}
        """By region."""
        self.divergences = 0
        """How often a key was found to differ since the start."""

    @property
    def _digests(self) -> KeyDigests:
        return self._links.local.digests

    @property
    def is_busy(self) -> bool:
        """Whether :meth:`tick` has something to prepare: it may be called more often."""
        return bool(self._questions) or any(each.passed is not None for each in self._comparisons)

    # -- steering -----------------------------------------------------------------------------

    def verify(self, session: PeerSession, keys: list[Place], now_ms: float) -> Verdict:
        """Compare with a region: some keys, or all if none are named."""
        verdict = Verdict()
        self._begin(session, verdict, keys, now_ms)
        return verdict

    def _begin(
        self, session: PeerSession, verdict: Verdict, keys: list[Place], now_ms: float
    ) -> _PeerComparison:
        comparison = _PeerComparison(session, verdict, now_ms, named=bool(keys))
        if keys:
            comparison.buckets = []
            comparison.keys = list(dict.fromkeys(keys))
        else:
            comparison.passed = self._digests.passed
        self._comparisons.append(comparison)
        return comparison

    def end(self, session: PeerSession) -> None:
        """A link has ended: give up what was asked over it."""
        self._due.pop(session.region, None)
        self._questions = [each for each in self._questions if each.session is not session]
        for comparison in list(self._comparisons):
            if comparison.session is session:
                self._give_up(comparison, "the connection was lost")

    def _give_up(self, comparison: _PeerComparison, why: str) -> None:
        self._comparisons.remove(comparison)
        comparison.verdict.end(f"TRYAGAIN {why}")

    def tick(self, now_ms: float) -> None:
        """Time has passed: do a slice of the comparisons in progress, and begin those due."""
        self._begin_due(now_ms)
        if self.is_busy:
            self._digests.advance()
        self._answer()
        for comparison in list(self._comparisons):
            if comparison.request:
                if now_ms - comparison.asked_ms >= ANSWER_MS:
                    self._give_up(comparison, "no answer came")
            elif self._is_prepared(comparison) and now_ms >= comparison.next_ms:
                self._ask(comparison, now_ms)

    def _begin_due(self, now_ms: float) -> None:
        interval_ms = self._links.config.digest_interval_ms
        if not interval_ms:
            self._due.clear()
            return
        for session in self._links.up():
            due_ms = self._due.setdefault(session.region, now_ms + interval_ms)
            if now_ms >= min(due_ms, now_ms + interval_ms):
                self._due[session.region] = now_ms + interval_ms
                if not any(c.is_periodic and c.session is session for c in self._comparisons):
                    self._begin(session, Verdict(), [], now_ms).is_periodic = True

    def _is_prepared(self, comparison: _PeerComparison) -> bool:
        if comparison.passed is None:
            return True
        if self._digests.passed - comparison.passed < BUCKETS:
            return False
        comparison.passed = None
        return True

    # -- asking -------------------------------------------------------------------------------

    def _ask(self, comparison: _PeerComparison, now_ms: float) -> None:
        """The next question of a comparison, or its end."""
        if comparison.opened:
            comparison.seen = set()
            self._send(comparison, KeysGet(self._number(), comparison.opened[0], []), now_ms)
        elif comparison.keys:
            if self._prepare_keys(comparison.keys):
                keys = comparison.keys
                self._send(comparison, KeysGet(self._number(), None, keys), now_ms)
        elif comparison.buckets and comparison.attempts < ATTEMPTS:
            self._ask_buckets(comparison, now_ms)
        else:
            self._finish(comparison, now_ms)

    def _number(self) -> int:
        self._request += 1
        return self._request

    def _send(self, comparison: _PeerComparison, message: Digests | KeysGet, now_ms: float) -> None:
        comparison.request = message.request
        comparison.asked_ms = now_ms
        self._links.send(comparison.session, message)

    def _prepare_keys(self, keys: Iterable[Place]) -> bool:
        work = SLICE
        for place in keys:
            work = self._digests.prepare(place, work)
            if work <= 0:
                return False
        return True

    def _ask_buckets(self, comparison: _PeerComparison, now_ms: float) -> None:
        asked, sums = self._sums(comparison.buckets)
        if not asked:
            self._pause(comparison, now_ms)
            return
        comparison.asked = asked
        comparison.vector = dict(self._links.local.vector)
        named = [] if len(asked) == BUCKETS else asked
        packed = b"".join(each.to_bytes(DIGEST_BYTES, "little") for each in sums)
        message = Digests(self._number(), comparison.vector, named, packed)
        self._send(comparison, message, now_ms)

    def _sums(self, buckets: Iterable[int]) -> tuple[list[int], list[int]]:
        """Buckets whose present digest is known, and their digests."""
        digests = self._digests
        asked, sums = [], []
        work = SLICE
        for bucket in buckets:
            found = digests.sum_of(bucket)
            if found is None and work > 0:
                work = digests.refresh(bucket, work)
                found = digests.sum_of(bucket)
            if found is not None:
                asked.append(bucket)
                sums.append(found)
        return asked, sums

    def _pause(self, comparison: _PeerComparison, now_ms: float) -> None:
        comparison.next_ms = now_ms + RETRY_MS * 2**comparison.attempts
        comparison.attempts += 1

    # -- answers ------------------------------------------------------------------------------

    def _asked(self, session: PeerSession, request: int) -> _PeerComparison | None:
        for comparison in self._comparisons:
            if comparison.request == request and comparison.session is session:
                return comparison
        return None

    def differing(self, session: PeerSession, message: Differing, now_ms: float) -> None:
        """The other region names the buckets of keys in which it differs."""
        comparison = self._asked(session, message.request)
        if comparison is None:
            return
        comparison.request = 0
        different = {row.bucket: row.last_effects for row in message.buckets}
        unknown = {*different, *message.busy}
        equal = {bucket for bucket in comparison.asked if bucket not in unknown}
        comparison.buckets = [each for each in comparison.buckets if each not in equal]
        is_last = comparison.attempts >= ATTEMPTS - 1
        for bucket, last_effects in different.items():
            # With later effects on the bucket it is in flight.
            ours = self._digests.last_effects_in(bucket)
            if is_last or comparable(comparison.vector, ours, message.vector, last_effects):
                comparison.opened.append(bucket)
                comparison.buckets = [each for each in comparison.buckets if each != bucket]
        self._pause(comparison, now_ms)
        if comparison.opened:
            comparison.next_ms = now_ms

    def keys(self, session: PeerSession, message: Keys, now_ms: float) -> None:
        """The other region sends the digests of keys of a bucket."""
        comparison = self._asked(session, message.request)
        if comparison is None:
            return
        if message.is_last:
            comparison.request = 0
        if comparison.opened:
            self._compare_opened(comparison, message)
        else:
            self._compare_keys(comparison, message, now_ms)

    def _compare_opened(self, comparison: _PeerComparison, message: Keys) -> None:
        """Find the keys that must be compared one by one."""
        bucket = comparison.opened[0]
        ours = self._digests.keys_of(bucket)
        for row in message.keys:
            place = row.db, row.key
            comparison.seen.add(place)
            if _packed(ours.get(place)) != row.digest:
                comparison.keys.append(place)
        if message.is_last:
            comparison.keys += [place for place in ours if place not in comparison.seen]
            names = [key for _, key in comparison.keys]
            del comparison.keys[_count_of_some(names, CANDIDATES_MAX) :]
            del comparison.opened[0]

    def _compare_keys(self, comparison: _PeerComparison, message: Keys, now_ms: float) -> None:
        digests, vector = self._digests, self._links.local.vector
        found = comparison.verdict.keys
        for row in message.keys:
            place = row.db, row.key
            ours = _packed(digests.digest_of(place)) if place[0] < digests.databases else b""
            if ours == row.digest:
                found[place] = EQUAL
            elif comparable(
                vector, digests.last_effects_on_key(place), message.vector, row.last_effects
            ):
                found[place] = DIFFERS
                self._alarm(comparison, place, ours, row.digest, now_ms)
            else:
                found[place] = IN_FLIGHT
        if message.is_last:
            comparison.keys = [each for each in comparison.keys if found.get(each) == IN_FLIGHT]
            if comparison.attempts >= ATTEMPTS:
                comparison.keys = []
            self._pause(comparison, now_ms)

    def _alarm(
        self, comparison: _PeerComparison, place: Place, ours: bytes, theirs: bytes, now_ms: float
    ) -> None:
        self.divergences += 1
        comparison.alarms += 1
        if comparison.alarms > ALARMS_MAX:
            return
        region = comparison.session.region
        self._links.report_once(
            "divergence", (region, place), now_ms, **self._links.named(region),
            db=place[0], key=place[1][:128].decode("utf-8", "backslashreplace"),
            ours=_shown(ours), theirs=_shown(theirs),
        )  # fmt: skip

    def _finish(self, comparison: _PeerComparison, now_ms: float) -> None:
        self._comparisons.remove(comparison)
        verdict = comparison.verdict
        if not comparison.named:
            verdict.keys = {key: how for key, how in verdict.keys.items() if how != EQUAL}
            hows = list(verdict.keys.values())
            digests = self._digests
            total = sum(len(digests.keys_of(bucket)) for bucket in range(BUCKETS))
            waiting = sum(len(digests.keys_of(bucket)) for bucket in comparison.buckets)
            verdict.in_flight = hows.count(IN_FLIGHT) + waiting
            verdict.equal = max(0, total - len(hows) - waiting)
            self.compared[comparison.session.region] = DigestComparison(
                now_ms, hows.count(DIFFERS), verdict.in_flight
            )
        verdict.end()

    # -- being asked --------------------------------------------------------------------------

    def asked(self, session: PeerSession, message: Digests | KeysGet, now_ms: float) -> None:
        """A request of another region: answered as soon as the digests are prepared."""
        if isinstance(message, Digests):
            count = len(message.buckets) or BUCKETS
            if len(message.sums) != count * DIGEST_BYTES:
                raise Refusal(Reason.PROTOCOL, f"{len(message.sums)} bytes for {count} digests")
        if sum(each.session is session for each in self._questions) < QUESTIONS_MAX:
            self._questions.append(_Question(session, message, self._digests.passed))

    def _answer(self) -> None:
        """Answer requests in turn for a slice of time, at least one step."""
        for question in list(self._questions):
            self._questions.remove(question)
            if not self._answered(question):
                self._questions.append(question)
            if self._links.local.is_over:
                return

    def _answered(self, question: _Question) -> bool:
        """Answer a request if the digests are prepared; returns whether it was answered."""
        message = question.message
        if isinstance(message, Digests):
            # A repeated request for a few buckets: they were refreshed a moment ago.
            if not message.buckets and self._digests.passed - question.passed < BUCKETS:
                return False
            self._answer_buckets(question.session, message)
        elif message.bucket is not None:
            if self._digests.refresh(message.bucket) <= 0:
                return False
            self._answer_opened(question.session, message.request, message.bucket)
        else:
            if not self._prepare_keys(self._present(message.keys)):
                return False
            self._answer_keys(question.session, message)
        return True

    def _present(self, keys: list[Place]) -> list[Place]:
        """Keys of databases that exist here."""
        return [place for place in keys if place[0] < self._digests.databases]

    def _answer_buckets(self, session: PeerSession, message: Digests) -> None:
        buckets = message.buckets or list(range(BUCKETS))
        starts = range(0, len(message.sums), DIGEST_BYTES)
        packed = [message.sums[at : at + DIGEST_BYTES] for at in starts]
        theirs = dict(zip(buckets, packed, strict=True))
        summed, sums = self._sums(buckets)
        rows = [
            DifferingBucket(bucket, self._digests.last_effects_in(bucket))
            for bucket, ours in zip(summed, sums, strict=True)
            if ours.to_bytes(DIGEST_BYTES, "little") != theirs[bucket]
        ]
        busy = sorted(set(buckets).difference(summed))
        vector = dict(self._links.local.vector)
        self._links.send(session, Differing(message.request, vector, rows, busy))

    def _answer_opened(self, session: PeerSession, request: int, bucket: int) -> None:
        rows = [
            KeyDigest(*place, _packed(digest), {})
            for place, digest in self._digests.keys_of(bucket).items()
        ]
        self._send_keys(session, request, rows)

    def _answer_keys(self, session: PeerSession, message: KeysGet) -> None:
        digests = self._digests
        here = set(self._present(message.keys))
        rows = [
            KeyDigest(
                *place,
                _packed(digests.digest_of(place)) if place in here else b"",
                digests.last_effects_on_key(place),
            )
            for place in message.keys
        ]
        self._send_keys(session, message.request, rows)

    def _send_keys(self, session: PeerSession, request: int, rows: list[KeyDigest]) -> None:
        vector = dict(self._links.local.vector)
        while (some := _count_of_some([row.key for row in rows], KEYS_A_FRAME)) < len(rows):
            self._links.send(session, Keys(request, vector, rows[:some], False))
            del rows[:some]
        self._links.send(session, Keys(request, vector, rows, True))


def _count_of_some(keys: list[bytes], most: int) -> int:
    """How many of these keys are in one message: at most ``most``, and few if they are long."""
    left = KEY_BYTES_A_FRAME
    for at, key in enumerate(keys[:most]):
        left -= len(key)
        if at and left < 0:
            return at
    return min(len(keys), most)


def _packed(digest: int | None) -> bytes:
    """The bytes of a key's digest; empty if the key does not exist."""
    return b"" if digest is None else digest.to_bytes(DIGEST_BYTES, "little")


def _shown(packed: bytes) -> str:
    """The digest in the form of AB.DIGEST."""
    return f"{int.from_bytes(packed, 'little'):032x}" if packed else "none"
