"""AB.REDRIVE: gives dead letters back to the group that gave them up.

If the entry is still in its stream, it becomes released in that group, with a delivery count of 0;
no other group gets it. Otherwise it is added again, once, under an idempotent ID. The copy is
removed. All effects of a command are in one turn of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from anabranch.effects import kinds
from anabranch.engine import texts
from anabranch.engine.arguments import id_list, integer_or_none
from anabranch.engine.leases import LeasePlace
from anabranch.engine.releasing import add_once, without_id
from anabranch.errors import CommandError
from anabranch.resp.values import Map
from anabranch.stream.entry_id import MAX_ID, InvalidId, parse, text
from anabranch.stream.stream import Stream

if TYPE_CHECKING:
    from anabranch.engine.context import Context

COUNT_DEFAULT: Final = 100
COUNT_MAX: Final = 1000
"""Dead letters that one command gives back: some milliseconds."""

_LOOKED_AT: Final = 10
"""Entries looked at for each one that may be given back."""

_NAMES: Final = (
    *(b"ab-origin", b"ab-id", b"ab-group", b"ab-consumer", b"ab-deliveries", b"ab-reason"),
    *(b"ab-first", b"ab-last", b"ab-attempts"),
)
_PRODUCER: Final = b"ab-redrive:"


class _RedriveOptions:
    """What a request asks for."""

    def __init__(self, args: list[bytes]) -> None:
        self.ids: list[int] | None = None
        self.count = COUNT_DEFAULT
        self.reason: bytes | None = None
        self.is_dry = False
        at = 2
        while at < len(args):
            at = self._read(args, at)

    def _read(self, args: list[bytes], at: int) -> int:
        """Read one option; the index behind it."""
        word, more = args[at].upper(), len(args) - at - 1
        if word == b"DRYRUN":
            self.is_dry = True
            return at + 1
        if word == b"REASON" and more:
            self.reason = args[at + 1].lower()
            return at + 2
        number = integer_or_none(args[at + 1]) if more else None
        if word not in (b"COUNT", b"IDS") or number is None:
            raise CommandError(texts.SYNTAX)
        if not 1 <= number <= COUNT_MAX:
            raise CommandError(f"ERR {word.decode()} must be from 1 to {COUNT_MAX}")
        self.count = number
        if word == b"COUNT":
            return at + 2
        self.ids = list(dict.fromkeys(id_list(args[at + 2 : at + 2 + number])))
        if more - 1 < number:
            raise CommandError("ERR number of IDs doesn't match numids")
        return at + 2 + number


class _Letter:
    """One dead letter."""

    def __init__(self, entry_id: int, fragment: bytes) -> None:
        self.entry_id = entry_id
        self.values: dict[bytes, bytes] = {}
        self.count, self.body = without_id(fragment)
        at = 0
        for name in _NAMES:
            found, at = _word(self.body, at)
            if found != name:
                return  # no dead letter
            self.values[name], at = _word(self.body, at)
            self.count -= 2
        self.body = self.body[at:]

    @property
    def is_sound(self) -> bool:
        """Whether it says where it comes from."""
        return len(self.values) == len(_NAMES)


def _word(body: bytes, at: int) -> tuple[bytes, int]:
    """The bulk string at an index, and the index behind it; an empty one at the end."""
    if at >= len(body):
        return b"", at
    end = body.index(b"\r\n", at)
    begin = end + 2
    size = int(body[at + 1 : end])
    return body[begin : begin + size], begin + size + 2


def redrive(ctx: Context, args: list[bytes]) -> bytes:
    """AB.REDRIVE key [IDS numids id ... | COUNT n] [REASON r] [DRYRUN]: done, skipped, left."""
    options = _RedriveOptions(args)
    stream = ctx.stream(args[1])
    if stream is None:
        raise CommandError(texts.NO_SUCH_KEY)
    done: list[int] = []
    skipped: list[list[bytes | str]] = []
    for letter in list(_letters(stream, options)):
        if len(done) == options.count:
            break
        if options.reason is not None and letter.values.get(b"ab-reason") != options.reason:
            continue
        problem = _give_back(ctx, args[1], letter, is_dry=options.is_dry)
        if problem:
            skipped.append([text(letter.entry_id), problem])
        else:
            done.append(letter.entry_id)
    if done and not options.is_dry:
        effect = kinds.Remove(
            ctx.db.index, args[1], done, counted=True, dereferenced=False, trimmed=False
        )
        ctx.emit(effect)
        ctx.changes += len(done)
        ctx.stats.policy_redriven += len(done)
    left = stream.length - (len(done) if options.is_dry else 0)
    return ctx.reply(Map([("done", len(done)), ("skipped", skipped), ("left", left)]))


def _letters(stream: Stream, options: _RedriveOptions) -> Iterator[_Letter]:
    """The entries to look at, the oldest first, or those that were asked for."""
    if options.ids is not None:
        for entry_id in options.ids:
            for fragment in stream.fragments(entry_id):
                yield _Letter(entry_id, bytes(fragment))
        return
    for block, low, high in stream.spans(0, MAX_ID, options.count * _LOOKED_AT):
        for index in range(low, high):
            yield _Letter(block.ids[index], bytes(block.fragment(index)))


def _give_back(ctx: Context, key: bytes, letter: _Letter, *, is_dry: bool) -> str:
    """Give one entry back; the reason if that is not possible."""
    if not letter.is_sound:
        return "no dead letter: the fields ab-origin to ab-attempts are not its first ones"
    origin, name = letter.values[b"ab-origin"], letter.values[b"ab-group"]
    try:
        entry_id = parse(letter.values[b"ab-id"])
    except InvalidId:
        return "ab-id is no entry ID"
    if not _may_write(ctx, origin, name, letter.values[b"ab-id"]):
        return "no permission to release entries of the stream"
    value = ctx.lookup(origin)
    group = value.groups.get(name) if type(value) is Stream else None
    if type(value) is not Stream or group is None:
        return "the stream or the group does not exist any more"
    if entry_id > group.progress.last_delivered_id:
        return "the group has not been given the entry yet: it was set back"
    pairs = value.claimable(group, entry_id)
    if any(entry is not None for _, entry in pairs):
        return "the entry is pending in the group"
    rows = [(entry_id, found[0], 0, 0) for found, _ in pairs if found is not None]
    if is_dry:
        return ""
    if rows:
        ctx.emit(kinds.Assign(ctx.db.index, origin, name, None, rows))
        ctx.changes += len(rows)
        ctx.server.leases.look(LeasePlace(ctx.db.index, origin, name, False), ctx.now_ms)
        return ""
    tag = (_PRODUCER + key, text(letter.entry_id))
    is_added = add_once(ctx, ctx.db.index, origin, tag, letter.count, letter.body)
    return "" if is_added else "the entry cannot be added to the stream at present"


def _may_write(ctx: Context, key: bytes, name: bytes, entry_id: bytes) -> bool:
    """Whether the user could do it by XNACK."""
    words = [b"XNACK", key, name, b"FAIL", b"IDS", b"1", entry_id, b"FORCE"]
    entry, user = ctx.server.dispatcher.find(words), ctx.session.user
    assert entry is not None
    return user is None or user.judge(entry.command, words) is None
