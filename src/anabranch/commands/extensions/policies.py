"""AB.POLICY: what the server does for a stream and its groups, by name (docs/policies.md).

The policies, their types and their meaning are rows of :mod:`anabranch.config.policies`; which rule
counts for a name is known by :mod:`anabranch.keyspace.policies`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from anabranch.config.policies import (
    POLICIES,
    conflict_in,
    default_policy,
    excluded_in,
    nearest_policy,
    parse_policy,
)
from anabranch.effects import kinds
from anabranch.engine import texts
from anabranch.engine.homing import cluster, member
from anabranch.errors import CommandError
from anabranch.keyspace.policies import Subject
from anabranch.pattern import compile_glob
from anabranch.resp.encode import OK
from anabranch.resp.encode import integer as integer_reply

if TYPE_CHECKING:
    from anabranch.engine.context import Context
    from anabranch.keyspace.policies import EffectivePolicy

HOMES_LEVEL: Final = 4
"""The feature level from which a region knows homes of groups."""

_HOME: Final = "home-region"

_LEVEL: Final = 2
"""The feature level from which a region knows policies."""


def keys_of_policy(args: list[bytes]) -> list[tuple[int, str]]:
    """The key, or the pattern: who sets one needs permission for all keys that it can match."""
    is_pattern = len(args) > 2 and args[2].upper() == b"PATTERN"
    at = 3 if is_pattern else 2
    found = [(at, "RW update pattern" if is_pattern else "RW update")] if at < len(args) else []
    if args[1].lower() == b"set":  # the dead-letter stream is written to
        found += [
            (index + 1, "RW insert")
            for index in range(at + 1, len(args) - 1)
            if args[index].lower() == b"dead-letter"
        ]
    return found


def _subject(args: list[bytes], *, patterns: bool = True) -> tuple[Subject, int]:
    """``key | PATTERN glob [GROUP group]``, and the index behind it."""
    at = 2
    is_pattern = patterns and args[2].upper() == b"PATTERN"
    at += is_pattern
    if at >= len(args):
        raise CommandError("ERR syntax error, PATTERN needs a pattern of keys")
    name, group = args[at], None
    at += 1
    if at < len(args) and args[at].upper() == b"GROUP":
        if at + 1 >= len(args):
            raise CommandError("ERR syntax error, GROUP needs the name of a group")
        group = args[at + 1]
        at += 2
    if is_pattern:  # too long a pattern is refused here
        compile_glob(name)
        compile_glob(group or b"")
    return Subject(is_pattern, name, group), at


# -- AB.POLICY SET ----------------------------------------------------------------------------


def policy_set(ctx: Context, args: list[bytes]) -> bytes:
    """AB.POLICY SET key|PATTERN glob [GROUP group] name value [name value ...]: all or none."""
    subject, at = _subject(args)
    pairs = args[at:]
    if not pairs or len(pairs) % 2:
        raise CommandError("ERR syntax error, each policy needs a name and a value")
    rows: dict[str, str] = {}
    for raw, value in zip(pairs[::2], pairs[1::2], strict=True):
        name = _known(raw, subject)
        if name in rows:
            raise CommandError(f"ERR policy '{name}' is given twice")
        if name == _HOME and value.lower() != b"none":
            value = b"%d" % member(cluster(ctx)[0], value)
        rows[name] = _text(name, value)
    _check_together(ctx, subject, rows)
    ctx.replica.require_level(_LEVEL, "policies")
    _check_home(ctx, subject, rows)
    plain: list[tuple[bytes, bytes | None]] = [
        (name.encode(), text.encode("utf-8", "surrogateescape")) for name, text in rows.items()
    ]
    ctx.emit(
        kinds.SetPolicies(
            ctx.db.index, subject.name, subject.is_pattern, subject.group, plain, ctx.now_ms
        ),
        len(plain),
    )
    return OK


def _check_home(ctx: Context, subject: Subject, rows: dict[str, str]) -> None:
    """Refuse to give a group another home: its present home would not hand over."""
    if _HOME not in rows:
        return
    ctx.replica.require_level(HOMES_LEVEL, "home regions")
    known = ctx.db.policies.rules.get(subject, {}).get(_HOME.encode())
    text = None if known is None else known.text
    if text is not None and text != rows[_HOME].encode():
        raise CommandError(
            f"ERR policy 'home-region' is {_shown(text)} here already: AB.HOME MOVE moves a group; "
            "delete the policy first if nothing reads"
        )


def _known(raw: bytes, subject: Subject) -> str:
    """The name of a known policy that the subject can have."""
    name = raw.decode("utf-8", "replace").lower()
    row = POLICIES.get(name)
    if row is None:
        near = nearest_policy(name)
        hint = f"did you mean '{near}'?" if near else f"there are {', '.join(POLICIES)}"
        raise CommandError(f"ERR unknown policy '{name[:64]}': {hint}")
    if row.scope == "stream" and subject.group is not None:
        raise CommandError(f"ERR policy '{name}' concerns the stream as a whole: leave out GROUP")
    return name


def _text(name: str, value: bytes) -> str:
    """The value in its usual form."""
    kind = POLICIES[name].kind
    text = value.decode("utf-8", "surrogateescape")
    try:
        return kind.format(kind.parse([text]))
    except ValueError as objection:
        shown = text[:64].encode("utf-8", "backslashreplace").decode()
        raise CommandError(f"ERR policy '{name}' cannot be '{shown}': {objection}") from None


def _check_together(ctx: Context, subject: Subject, rows: dict[str, str]) -> None:
    """Refuse what excludes each other in one rule, or in what is in force for the key then."""
    policies = ctx.db.policies
    if not subject.is_pattern and rows.get("dead-letter") == _shown(subject.name):
        raise CommandError("ERR policy 'dead-letter' cannot be the stream itself: name another key")
    if subject.is_pattern:
        settings = policies.rules.get(subject, {})
        known = {name: each.text for name, each in settings.items()}
    else:
        in_force = policies.in_force(subject.name, subject.group)
        known = {name: each.text for name, each in in_force.items()}
    before = {name.decode("latin-1"): _shown(text) for name, text in known.items() if text}
    pair = conflict_in(before, rows)
    if pair is not None:
        raise CommandError(f"ERR policies '{pair[0]}' and '{pair[1]}' exclude each other")


def _shown(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


# -- AB.POLICY GET, DEL, LIST -----------------------------------------------------------------


def policy_get(ctx: Context, args: list[bytes]) -> bytes:
    """AB.POLICY GET key [GROUP group]: every policy with its value and where it comes from."""
    subject, at = _subject(args, patterns=False)
    if at < len(args):
        raise CommandError(texts.SYNTAX)
    found = ctx.db.policies.in_force(subject.name, subject.group)
    set_ = {name.decode("latin-1"): _shown(each.text) for name, each in found.items()}
    excluded = excluded_in(set_)
    rows: list[Any] = []
    for name, row in POLICIES.items():
        if row.scope == "stream" and subject.group is not None:
            continue
        known = found.pop(name.encode(), None)
        if known is None:
            rows.append(_row(name, default_policy(name, set_), "default", ""))
        else:
            note = _objection(name, known.text)
            if name in excluded:
                note = f"'{excluded[name]}' excludes this value: it is kept, and not in force"
            rows.append(_row(name, known.text, _source(known), note))
    for unknown, each in found.items():  # a newer region has set it
        note = "this server does not know the policy: it is kept, and not in force"
        rows.append(_row(unknown, each.text, _source(each), note))
    return ctx.reply(rows)


def _row(name: str | bytes, value: str | bytes, source: bytes | str, note: str) -> dict[str, Any]:
    return {
        "policy": name,
        "value": value,
        "source": source,
        "note": note,
    }


def _source(found: EffectivePolicy) -> bytes:
    """The rule in the words of AB.POLICY SET."""
    subject = found.subject
    text = b"pattern " + subject.name if subject.is_pattern else b"key"
    return text if subject.group is None else text + b" group " + subject.group


def _objection(name: str, text: bytes) -> str:
    """Why a value that a newer region has set is not in force here; empty if it is."""
    try:
        parse_policy(name, _shown(text))
    except ValueError as objection:
        return f"this server does not know the value: {objection}"
    return ""


def policy_del(ctx: Context, args: list[bytes]) -> bytes:
    """AB.POLICY DEL key|PATTERN glob [GROUP group] [name ...]; replies how many there were."""
    subject, at = _subject(args)
    wanted = {raw.lower() for raw in args[at:]}
    settings = ctx.db.policies.rules.get(subject, {})
    there = [name for name, each in settings.items() if each.text is not None]
    rows: list[tuple[bytes, bytes | None]] = [
        (name, None) for name in there if not wanted or name in wanted
    ]
    if rows:
        ctx.emit(
            kinds.SetPolicies(
                ctx.db.index, subject.name, subject.is_pattern, subject.group, rows, ctx.now_ms
            ),
            len(rows),
        )
    return integer_reply(len(rows))


def policy_list(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.POLICY LIST [glob]: every rule of the selected database whose name matches."""
    if len(args) > 3:
        raise CommandError(texts.SYNTAX)
    matches = compile_glob(args[2]) if len(args) == 3 else None
    rows: list[Any] = []
    for subject, values in sorted(ctx.db.policies.live(), key=lambda pair: _order(pair[0])):
        if matches is None or matches(subject.name):
            kind = "pattern" if subject.is_pattern else "key"
            named = {"type": kind, "name": subject.name, "group": subject.group}
            rows.append({**named, "policies": dict(sorted(values.items()))})
    return ctx.long_reply(args, rows)


def _order(subject: Subject) -> tuple[bool, bytes, bytes]:
    return subject.is_pattern, subject.name, subject.group or b""
