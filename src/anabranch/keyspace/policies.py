"""The policies of one database: which rule gives which value to which name.

A rule has a *subject*: a key, or a pattern of keys, and a group, a pattern of groups, or all groups
(None). It belongs to the name and not to the value: deleting the key does not delete it, and it may
be there before the key. For a name and a policy counts, in this order: the rule of the key and
group, the rule of the key, the pattern with the longest literal prefix, of several the one that was
set last. Of two that exclude each other, set by two rules or in two regions, the excluded one is
not in force. Where several regions write, the greatest stamp counts for each policy of a subject; a
deleted one leaves its stamp until every member has it.

Streams and their groups hold what is in force (``stream.retained``, ``group.policed``): commands
need not look here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from anabranch.config.policies import POLICIES, excluded_in, parse_policy
from anabranch.keyspace.expiry import Deadlines
from anabranch.metrics.holdings import DICT_BYTES, DICT_SLOT_BYTES, PAIR_BYTES
from anabranch.pattern import Matcher, compile_glob
from anabranch.stream.groups.policy import GroupPolicy, Policed
from anabranch.stream.retained import Retained, StreamPolicy
from anabranch.stream.stream import LONG_BYTES, Stream

if TYPE_CHECKING:
    from anabranch.keyspace.scan import KeyOrder
    from anabranch.keyspace.values import Value
    from anabranch.stream.groups.group import Group

_WILD: Final = frozenset(b"*?[\\")
_NAMES: Final = 200
"""Keys and groups that get new policies in one step: well under a millisecond."""

_PATTERNS: Final = 20
"""To compare a name with so many patterns takes as long as the rest of giving it its policies."""

_FREED: Final = 1000
"""Objects that are freed in one step."""

_RULE_BYTES: Final = DICT_BYTES + DICT_SLOT_BYTES + PAIR_BYTES
_SETTING_BYTES: Final = DICT_SLOT_BYTES + PAIR_BYTES + 100


class Subject(NamedTuple):
    """To what a rule applies."""

    is_pattern: bool
    name: bytes
    """A key, or a pattern of keys."""
    group: bytes | None
    """A group (of a pattern: a pattern of groups), or None for all groups."""


class PolicySetting(NamedTuple):
    """The value of one policy of one subject, and the effect that set it."""

    stamp_ms: int
    replica_id: int
    number: int
    text: bytes | None
    """None: it was deleted."""


PolicyFields = tuple[bool, bytes, bytes | None, bytes, int, int, int, bytes | None]
"""A subject, the name of a policy, and its setting, as they are written."""


class EffectivePolicy(NamedTuple):
    """A value that counts for a name, and the rule that gives it."""

    text: bytes
    subject: Subject


class _PatternRule(NamedTuple):
    prefix: int
    group_prefix: int
    matches: Matcher
    group_matches: Matcher | None
    subject: Subject


def literal_prefix(glob: bytes) -> int:
    """How many bytes of a pattern stand before its first sign."""
    for at, char in enumerate(glob):
        if char in _WILD:
            return at
    return len(glob)


def _pattern_rule(subject: Subject) -> _PatternRule:
    return _PatternRule(
        literal_prefix(subject.name),
        -1 if subject.group is None else literal_prefix(subject.group),
        compile_glob(subject.name),
        None if subject.group is None else compile_glob(subject.group),
        subject,
    )


class Policies:
    """The rules of one database. Changed through ``effects`` only."""

    def __init__(self) -> None:
        self.rules: dict[Subject, dict[bytes, PolicySetting]] = {}
        self.tombstones = 0  # deleted settings that are remembered
        self._patterns: dict[Subject, _PatternRule] = {}  # of those rules that are patterns
        self._rebinding: Iterator[None] | None = None  # goes through all keys
        self._groups_left: dict[bytes, tuple[Stream, deque[bytes]]] = {}  # of keys with many groups
        self._former: list[Policed] = []  # with much that is to be freed
        self.is_rebinding = False
        """Whether work is left, after a start, a new pattern, or a rule of a key with many groups:
        groups may not hold yet what is in force. Who delivers a group binds it first."""
        self._latest = StreamPolicy({})  # many streams have equal ones, and share them
        self.bound: dict[bytes, None] = {}
        """Keys with groups that got or lost policies; who looks after these takes them out."""
        self.retention: Deadlines[bytes] = Deadlines()
        """When to look at which stream for entries to remove."""

    # -- rules --------------------------------------------------------------------------------

    def set(self, subject: Subject, name: bytes, setting: PolicySetting, *, keeps: bool) -> None:
        """Set or delete one policy, unless a greater stamp has done so; ``keeps`` a tombstone."""
        known = self.rules.get(subject, {}).get(name)
        if known is not None:
            if known[:2] >= setting[:2]:
                return
            self.tombstones -= known.text is None
        if setting.text is None and not keeps:
            self._drop(subject, name)
            return
        self.tombstones += setting.text is None
        if subject.is_pattern and subject not in self._patterns:
            self._patterns[subject] = _pattern_rule(subject)
        self.rules.setdefault(subject, {})[name] = setting

    def _drop(self, subject: Subject, name: bytes) -> None:
        settings = self.rules.get(subject)
        if settings is not None:
            settings.pop(name, None)
            if not settings:
                del self.rules[subject]
                self._patterns.pop(subject, None)

    def prune(self, watermark: Mapping[int, int]) -> None:
        """Drop the tombstones that every member has."""
        if not self.tombstones:
            return
        for subject, settings in list(self.rules.items()):
            for name, setting in list(settings.items()):
                if setting.text is None and setting.number <= watermark.get(setting.replica_id, 0):
                    self.tombstones -= 1
                    self._drop(subject, name)

    def join(self, other: Policies) -> None:
        """Take over the greater stamps of another region."""
        for subject, settings in other.rules.items():
            for name, setting in settings.items():
                self.set(subject, name, setting, keeps=True)

    def live(self) -> Iterator[tuple[Subject, dict[bytes, bytes]]]:
        """Every subject that has a value, with its texts by policy."""
        for subject, settings in self.rules.items():
            texts = {name: each.text for name, each in settings.items() if each.text is not None}
            if texts:
                yield subject, texts

    # -- what counts for a name ---------------------------------------------------------------

    def in_force(self, key: bytes, group: bytes | None) -> dict[bytes, EffectivePolicy]:
        """By policy, known or not, what counts for a group, or (None) for a key as a whole."""
        best: dict[bytes, tuple[tuple[int, ...], EffectivePolicy]] = {}
        for rank, subject in self._matching(key, group):
            for name, setting in self.rules[subject].items():
                if setting.text is None:
                    continue
                known = best.get(name)
                full = (*rank, setting.stamp_ms, setting.replica_id)
                if known is None or full > known[0]:
                    best[name] = full, EffectivePolicy(setting.text, subject)
        return {name: found for name, (_, found) in best.items()}

    def _matching(
        self, key: bytes, group: bytes | None
    ) -> Iterator[tuple[tuple[int, ...], Subject]]:
        """The subjects of a name, with ranks: the greatest counts."""
        for rank, whole in ((2, Subject(False, key, group)), (1, Subject(False, key, None))):
            if whole in self.rules and (group is not None or rank == 1):
                yield (rank, 0, 0), whole
        for rule in self._patterns.values():
            if not rule.matches(key):
                continue
            if rule.group_matches is not None and (group is None or not rule.group_matches(group)):
                continue
            yield (0, rule.prefix, rule.group_prefix), rule.subject

    def of(self, key: bytes, group: bytes) -> GroupPolicy | None:
        """The values of a group; None if nothing is set that this server knows."""
        texts, values = self._known(key, group, "group")
        return GroupPolicy(texts, values) if values else None

    def of_stream(self, key: bytes) -> dict[str, Any]:
        """The values of a stream as a whole that are set and that this server knows."""
        return self._known(key, None, "stream")[1]

    def _known(
        self, key: bytes, group: bytes | None, scope: str
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Texts and values by the names of policies of a scope, without what others exclude."""
        texts: dict[str, str] = {}
        values: dict[str, Any] = {}
        for name, found in self.in_force(key, group).items():
            row = name.decode("latin-1")
            if row in POLICIES and POLICIES[row].scope == scope:
                text = found.text.decode("utf-8", "surrogateescape")
                try:
                    values[row] = parse_policy(row, text)
                except ValueError:  # a newer region knows more values
                    continue
                texts[row] = text
        for excluded in excluded_in(texts):
            del texts[excluded], values[excluded]
        return texts, values

    # -- what groups hold ---------------------------------------------------------------------

    def bind(self, key: bytes, value: Value | None) -> None:
        """Let a stream and its groups hold what is in force for them; of many groups some."""
        self._groups_left.pop(key, None)
        if type(value) is not Stream:
            return
        self._bind_stream(key, value)
        if len(value.groups) <= self._at_once():
            for name, group in value.groups.items():
                self.bind_group(key, name, group)
            return
        self._groups_left[key] = value, deque(value.groups)
        self.is_rebinding = True
        self._bind_some(key)

    def _at_once(self) -> int:
        """How many names are given their policies in one step."""
        return max(_NAMES * _PATTERNS // (_PATTERNS + len(self._patterns)), 1)

    def _bind_some(self, key: bytes) -> None:
        """Bind some of the groups that are left of a key."""
        stream, names = self._groups_left[key]
        for _ in range(min(self._at_once(), len(names))):
            name = names.popleft()
            group = stream.groups.get(name)
            if group is not None:
                self.bind_group(key, name, group)
        if not names:
            del self._groups_left[key]

    def _bind_stream(self, key: bytes, stream: Stream) -> None:
        """The same for what concerns the stream as a whole."""
        values = self.of_stream(key)
        policy = self._latest
        if policy.values != values:
            policy = self._latest = StreamPolicy(values)
        if not policy.retains:
            stream.retained = None
            stream.long_bytes = LONG_BYTES
            return
        stream.retained = Retained(policy, key, self.retention)
        stream.long_bytes = -1 if policy.counts_each else LONG_BYTES
        stream.retained.look()

    def bind_group(self, key: bytes, name: bytes, group: Group) -> None:
        """The same for one group."""
        policy, policed = self.of(key, name), group.policed
        if policy is None and policed is None:
            return
        self.bound[key] = None
        if policy is not None and policed is not None and policed.policy.texts == policy.texts:
            return
        group.policed = None if policy is None else Policed(policy)
        group.pending.order = None
        if group.policed is not None and group.policed.policy.backoff:
            group.policed.delay_some(group.pending)
        if policed is not None and policed.shrink(_FREED):
            self._former.append(policed)
            self.is_rebinding = True

    def rebind(self, subject: Subject, values: Mapping[bytes, Value], order: KeyOrder) -> None:
        """A rule has changed: bind the key, or begin to bind all keys; :meth:`go_on` does more."""
        if not subject.is_pattern:
            self.bind(subject.name, values.get(subject.name))
            return
        self.rebind_all(values, order)

    def rebind_all(self, values: Mapping[bytes, Value], order: KeyOrder) -> None:
        """Begin to bind all keys; the first ones at once."""
        self._groups_left.clear()
        self._rebinding = self._steps(values, order)
        self.go_on()

    def go_on(self) -> bool:
        """Do a step of what :meth:`rebind` has begun; returns whether more is left."""
        if self._groups_left:
            self._bind_some(next(iter(self._groups_left)))
        elif self._rebinding is not None and next(self._rebinding, self) is self:
            self._rebinding = None
        elif self._former and not self._former[-1].shrink(_FREED):
            self._former.pop()
        self.is_rebinding = self._rebinding is not None or bool(self._groups_left or self._former)
        return self.is_rebinding

    def _steps(self, values: Mapping[bytes, Value], order: KeyOrder) -> Iterator[None]:
        left = self._at_once()
        for keys in order.pages(_NAMES):
            for key in keys:
                value = values.get(key)
                self.bind(key, value)
                left -= 1 + (len(value.groups) if type(value) is Stream else 0)
                if left <= 0:
                    yield
                    left = self._at_once()

    # -- the rest -----------------------------------------------------------------------------

    @property
    def used_bytes(self) -> int:
        """The memory of the rules, and of when to look at streams."""
        size = self.retention.used_bytes
        for subject, settings in self.rules.items():
            size += _RULE_BYTES + getsizeof(subject.name) + getsizeof(subject.group)
            for setting in settings.values():
                size += _SETTING_BYTES + getsizeof(setting.text)
        return size

    def written(self) -> list[PolicyFields]:
        """The rules as plain values, for a snapshot: a row for each setting."""
        return [
            (*subject, name, *setting)
            for subject, settings in self.rules.items()
            for name, setting in settings.items()
        ]

    def restore(self, rows: list[PolicyFields]) -> int:
        """Add what :meth:`written` returned; returns the greatest stamp."""
        newest = 0
        for fields in rows:
            setting = PolicySetting(*fields[4:])
            self.set(Subject(*fields[:3]), fields[3], setting, keeps=True)
            newest = max(newest, setting.stamp_ms)
        return newest

    def check(self) -> None:
        """Assert every invariant."""
        settings = [each for some in self.rules.values() for each in some.values()]
        assert all(self.rules.values())
        assert self.tombstones == sum(each.text is None for each in settings)
