"""AB.REDRIVE: gives dead letters back to the group that gave them up.

If the entry is still in its stream, it becomes released in that group, with a delivery count of 0;
no other group gets it, and a key that it has stopped goes on with it. Otherwise it is added again,
once, under an idempotent ID. The copy is removed. All effects of a command are in one turn of the
log. With a RATE the command gives back the first ones, and the server goes on with what was there
(:class:`Redrive`), until it stops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from anabranch.effects import kinds
from anabranch.effects.acknowledging import GroupPlace, Told, told_by
from anabranch.engine import texts
from anabranch.engine.arguments import id_list, integer_or_none
from anabranch.engine.context import Context, existing
from anabranch.engine.homing import check_home
from anabranch.engine.leases import LeasePlace
from anabranch.engine.releasing import add_once
from anabranch.errors import CommandError
from anabranch.resp.encode import array_of, bulk
from anabranch.resp.values import read_value
from anabranch.stream.entry_id import InvalidId, parse, text
from anabranch.stream.stream import Stream

if TYPE_CHECKING:
    from anabranch.engine.acl.users import User
    from anabranch.stream.block import Block

COUNT_DEFAULT: Final = 100
COUNT_MAX: Final = 1000
"""Dead letters that one command gives back: some milliseconds."""

_RATE: Final = re.compile(rb"(0|[1-9][0-9]{0,5})/([SMH])")
_UNIT_MS: Final = {b"S": 1000, b"M": 60_000, b"H": 3_600_000}

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
        self.rate: tuple[int, int] | None = None
        """So many in so many ms; (0, ...) stops what goes on."""
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
        if word == b"RATE" and more:
            match = _RATE.fullmatch(args[at + 1].upper())
            if match is None:
                raise CommandError("ERR RATE must be a number and a unit: 10/s, 100/m or 500/h")
            self.rate = int(match[1]), _UNIT_MS[match[2]]
            return at + 2
        number = integer_or_none(args[at + 1]) if more else None
        if word not in (b"COUNT", b"IDS") or number is None:
            raise CommandError(texts.SYNTAX)
        if not 1 <= number <= COUNT_MAX:
            raise CommandError(f"ERR {word.decode()} must be from 1 to {COUNT_MAX}")
        self.count = number
        if word == b"COUNT":
            return at + 2
        self.ids = sorted(set(id_list(args[at + 2 : at + 2 + number])))
        if more - 1 < number:
            raise CommandError("ERR number of IDs doesn't match numids")
        return at + 2 + number


class _Letter:
    """One dead letter."""

    def __init__(self, entry_id: int, fragment: bytes) -> None:
        self.entry_id = entry_id
        _, words = read_value(fragment)
        names, values = words[: 2 * len(_NAMES) : 2], words[1 : 2 * len(_NAMES) : 2]
        self.is_sound = (*names,) == _NAMES
        """Whether it says where it comes from."""
        self.values: dict[bytes, bytes] = dict(zip(names, values, strict=True))
        self.words: list[bytes] = words[2 * len(_NAMES) :]
        """The names and values of the entry that was given up."""


def redrive(ctx: Context, args: list[bytes]) -> bytes:
    """AB.REDRIVE key [IDS numids id ... | COUNT n] [REASON r] [RATE n/s] [DRYRUN]."""
    options = _RedriveOptions(args)
    stream = existing(ctx.stream(args[1]))
    redrives, place = ctx.server.redrives, (ctx.db.index, args[1])
    run = _Redrive(ctx, args[1], stream, options)
    if options.rate is not None and not options.is_dry:
        redrives.pop(place, None)
        run.total = options.count if b"COUNT" in map(bytes.upper, args[2:]) else stream.length
        if options.rate[0] and run.go_on(ctx):
            redrives[place] = run.go_on
    else:
        run.give_back(ctx, stream, options.count)
    left = stream.length - (run.done if options.is_dry else 0)
    return ctx.reply(
        {
            "done": run.done,
            "skipped": run.skipped,
            "left": left,
        }
    )


class _Redrive:
    """Gives dead letters back, of those that were there at its begin, the oldest first."""

    def __init__(self, ctx: Context, key: bytes, stream: Stream, options: _RedriveOptions) -> None:
        self.done = 0
        self.skipped: list[list[bytes | str]] = []
        """Dead letters that stay, and why."""
        self.total = options.count
        """So many are given back, with a rate in the course of time."""
        self._key = key
        self._options = options
        self._user = ctx.session.user
        self._began_ms = ctx.now_ms
        self._after = 0  # up to this ID all were looked at
        self._last = stream.last_id

    def go_on(self, ctx: Context) -> bool:
        """Give back what the rate allows until now, or a slice of it; whether more is left."""
        value, user = ctx.db.values.get(self._key), self._user
        if type(value) is not Stream or self._options.rate is None:
            return False
        if user is not None and ctx.server.acl.users.get(user.name) is not user:
            return False  # the user was deleted
        if not _may_write(ctx, user, [b"AB.REDRIVE", self._key]):
            return False
        del self.skipped[:]
        count, unit_ms = self._options.rate
        due = 1 + (ctx.now_ms - self._began_ms) * count // unit_ms
        while (most := min(due, self.total) - self.done) > 0:
            if not self.give_back(ctx, value, min(most, COUNT_DEFAULT)):
                return False
            if ctx.server.runner.is_over():
                break
        return True

    def give_back(self, ctx: Context, stream: Stream, most: int) -> bool:
        """Give back so many; returns whether there may be more."""
        options = self._options
        done: list[int] = []
        looked_at = options.count * _LOOKED_AT
        while len(done) < most and looked_at > 0:
            rows = _rows(stream, options, self._after, self._last)
            some = list(islice(rows, min(most - len(done), looked_at)))
            looked_at -= len(some)
            if not some:
                break
            done += self._give_back_some(ctx, some)
        is_left = next(_rows(stream, options, self._after, self._last), None) is not None
        self.done += len(done)
        if done and not options.is_dry:
            ctx.emit(
                kinds.Remove(
                    ctx.db.index, self._key, done, counted=True, dereferenced=False, trimmed=False
                ),
                len(done),
            )
            ctx.stats.policy_redriven += len(done)
        return is_left and self.done < self.total

    def _give_back_some(self, ctx: Context, rows: list[tuple[int, bytes]]) -> list[int]:
        """Give back those that were asked for; the IDs of those that were given back."""
        options = self._options
        reason = options.reason
        about = b"" if reason is None else b"$9\r\nab-reason\r\n%b" % bulk(reason)
        done: list[int] = []
        for entry_id, fragment in rows:
            self._after = max(self._after, entry_id)
            if about not in fragment:  # to read it as a dead letter takes ten times as long
                continue
            letter = _Letter(entry_id, fragment)
            if reason is not None and letter.values.get(b"ab-reason") != reason:
                continue
            problem = _give_back(ctx, self._key, letter, self._user, is_dry=options.is_dry)
            if problem:
                self.skipped.append([text(letter.entry_id), problem])
            else:
                done.append(letter.entry_id)
        return done


def _rows(
    stream: Stream, options: _RedriveOptions, after: int, last: int
) -> Iterator[tuple[int, bytes]]:
    """The entries to look at behind an ID, the oldest first, or those that were asked for."""
    if options.ids is not None:
        for entry_id in options.ids:
            for fragment in stream.fragments(entry_id) if entry_id > after else ():
                yield entry_id, bytes(fragment)
        return
    for block, low, high in stream.spans(after + 1, last, options.count * _LOOKED_AT):
        for index in range(low, high):
            yield block.ids[index], bytes(block.fragment(index))


def _give_back(
    ctx: Context, key: bytes, letter: _Letter, user: User | None, *, is_dry: bool
) -> bytes | str:
    """Give one entry back; the reason if that is not possible."""
    if not letter.is_sound:
        return "no dead letter: the fields ab-origin to ab-attempts are not its first ones"
    origin, name = letter.values[b"ab-origin"], letter.values[b"ab-group"]
    try:
        entry_id = parse(letter.values[b"ab-id"])
    except InvalidId:
        return "ab-id is no entry ID"
    words = [b"XNACK", origin, name, b"FAIL", b"IDS", b"1", letter.values[b"ab-id"], b"FORCE"]
    if not _may_write(ctx, user, words):
        return "no permission to release entries of the stream"
    value = ctx.lookup(origin)
    group = value.groups.get(name) if type(value) is Stream else None
    if type(value) is not Stream or group is None:
        return "the stream or the group does not exist any more"
    try:
        check_home(ctx, origin, name, group)
    except CommandError as refusal:
        return b"ask in the home of the group: " + refusal.text
    if entry_id > group.progress.last_delivered_id:
        return (
            "the group has not been given the entry here: it was set back, or another region has it"
        )
    pairs = value.claimable(group, entry_id)
    policy = None if group.policed is None else group.policed.policy
    for _, entry in pairs:
        if entry is not None and (policy is None or not policy.is_halted(entry)):
            return "the entry is pending in the group"
    rows = [(entry_id, found[0], 0, 0) for found, _ in pairs if found is not None]
    if is_dry:
        return ""
    if rows:
        place = GroupPlace(ctx.db.index, origin, name, value, group)
        for effect in told_by(place, _untold(place, [found for found, _ in pairs if found])):
            ctx.emit(effect)
        ctx.emit(kinds.Assign(ctx.db.index, origin, name, None, rows), len(rows))
        ctx.server.leases.look(LeasePlace(ctx.db.index, origin, name, False), ctx.now_ms)
        return ""
    tag = (_PRODUCER + key, text(letter.entry_id))
    is_added = add_once(ctx, ctx.db.index, origin, tag, array_of(letter.words))
    return "" if is_added else "the entry cannot be added to the stream at present"


def _untold(place: GroupPlace, entries: list[tuple[int, Block, int]]) -> list[Told]:
    """The entries of which this region does not know that they are acknowledged.

    Who gave them up may not have told yet. Otherwise they would be new here, too, and the late
    acknowledgement would end what is given back now.
    """
    shared = place.group.shared
    if place.group.progress is not shared:
        return []
    numbers = [(replica_id, block.number(index)) for replica_id, block, index in entries]
    return [(each, n - 1, n) for each, n in numbers if not shared.is_acknowledged(each, n)]


def _may_write(ctx: Context, user: User | None, words: list[bytes]) -> bool:
    """Whether the user could do it by XNACK."""
    entry = ctx.server.dispatcher.find(words)
    assert entry is not None
    return user is None or user.judge(entry.command, words) is None
