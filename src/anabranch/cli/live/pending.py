"""``anabranch pending``: entries that were delivered and not acknowledged; release or bury them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import click

from anabranch.cli.live.shared import (
    BYTES,
    on_server,
    print_json,
    print_table,
    running,
)
from anabranch.cli.options import FiniteRange, json_option, taken
from anabranch.cli.terminal import age, shown


@click.command(
    help="""Show the pending entries of a group: consumer, idle time, number of deliveries.

--release gives the shown entries back to the group (XNACK FAIL), so that another consumer gets
them. --dead-letter adds each to another stream, with key, ID, group, consumer and deliveries of its
origin, and then acknowledges it; the same is not added twice. Entries that were acknowledged,
claimed or delivered again after they were shown are left alone.

\b
Examples:
  anabranch pending orders billing --min-idle 60
  anabranch pending orders billing --min-deliveries 5 --dead-letter orders.dead
""",
)
@click.argument("stream", type=BYTES, metavar="KEY")
@click.argument("group", type=BYTES)
@click.option("--consumer", type=BYTES, metavar="NAME", help="Only entries of this consumer.")
@click.option("--count", type=click.IntRange(1, 10_000), default=20, show_default=True)
@click.option(
    "--min-idle", type=FiniteRange(0), default=0.0, help="Only those idle for so many seconds."
)
@click.option(
    "--min-deliveries", type=click.IntRange(0), default=0, help="Only those delivered so often."
)
@click.option("--release", is_flag=True, help="Give these entries back to the group.")
@click.option(
    "--dead-letter", "target", type=BYTES, metavar="KEY", help="Move these entries to a stream."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option("Print one JSON object; needs --yes to change something.")
@on_server
def command(stream: bytes, group: bytes, as_json: bool, db: int | None, **options: Any) -> None:
    """Print the pending entries; release or move them, once the user has agreed."""
    wanted = taken(_PendingOptions, options)
    release, target, yes = wanted.release, wanted.target, wanted.yes
    consumer, count = wanted.consumer, wanted.count
    if release and target:
        raise click.UsageError("give one of --release and --dead-letter")
    if as_json and (release or target) and not yes:
        raise click.UsageError("--json does not ask: give --yes")
    with running(db, options) as client:
        found = client.xpending_range(
            stream, group, "-", "+", count, consumer, idle=int(wanted.min_idle * 1000) or None
        )
        rows = [row for row in found if row["times_delivered"] >= wanted.min_deliveries]
        total = _count(client, stream, group, consumer)
        facts: dict[str, Any] = {"pending": [_facts(row) for row in rows], "count": total}
        if not as_json:
            _print(rows)
            if len(rows) < total:
                more = "; --count shows more" if len(found) == count else ""
                print(f"{len(rows):,} of {total:,}{more}", file=sys.stderr)
        act = "release" if release else f"move to {shown(target)}" if target else ""
        what = "this entry" if len(rows) == 1 else f"these {len(rows)} entries"
        if act and rows and (yes or click.confirm(f"{act}: {what}?", err=True)):
            done = left = 0
            for row in rows:
                if not _is_as_shown(client, stream, group, row):
                    left += 1
                elif target is None:
                    done += _release(client, stream, group, row)
                else:
                    done += _bury(client, stream, group, row, target)
            facts |= {"moved" if target else "released": done, "changed": left}
            if not as_json:
                note = f", {left} left alone: they changed meanwhile" if left else ""
                print(f"{done} {'moved' if target else 'released'}{note}")
    if as_json:
        print_json(facts)


@dataclass(frozen=True, slots=True)
class _PendingOptions:
    """Which entries are shown, and what is done with them."""

    consumer: bytes | None
    count: int
    min_idle: float
    min_deliveries: int
    release: bool
    target: bytes | None
    yes: bool


def _count(client: Any, key: bytes, group: bytes, consumer: bytes | None) -> int:
    """The pending entries of the group, or of one consumer."""
    summary = client.xpending(key, group)
    if consumer is None:
        return int(summary["pending"])
    owners = {each["name"]: each["pending"] for each in summary["consumers"]}
    return int(owners.get(consumer, 0))


def _facts(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row["message_id"].decode(),
        "consumer": shown(row["consumer"]),
        "idle_ms": row["time_since_delivered"],
        "deliveries": row["times_delivered"],
    }


def _print(rows: list[dict[str, Any]]) -> None:
    print_table(
        ["ID", "consumer", "idle", "deliveries"],
        [
            [each["id"], each["consumer"] or "-", age(each["idle_ms"]), str(each["deliveries"])]
            for each in map(_facts, rows)
        ],
    )


def _is_as_shown(client: Any, key: bytes, group: bytes, row: dict[str, Any]) -> bool:
    """Whether nobody took or acknowledged an entry since it was listed."""
    entry_id = row["message_id"]
    found = client.xpending_range(key, group, entry_id, entry_id, 1)
    what = ("consumer", "times_delivered")
    return [[now[name] for name in what] for now in found] == [[row[name] for name in what]]


def _release(client: Any, key: bytes, group: bytes, row: dict[str, Any]) -> int:
    return int(client.execute_command("XNACK", key, group, "FAIL", "IDS", 1, row["message_id"]))


def _bury(client: Any, key: bytes, group: bytes, row: dict[str, Any], target: bytes) -> int:
    """Acknowledge only what was added: a transaction would go on behind an XADD that fails."""
    entry_id: bytes = row["message_id"]
    entries = client.execute_command("XRANGE", key, entry_id, entry_id)
    fields = entries[0][1] if entries else []
    origin = {
        "origin-key": key,
        "origin-id": entry_id,
        "origin-group": group,
        "origin-consumer": row["consumer"],
        "origin-deliveries": row["times_delivered"],
    }
    pairs = [word for pair in origin.items() for word in pair]
    # By content: a stream that was made again may have another entry under the same ID.
    client.execute_command(
        "XADD", target, "IDMPAUTO", b"dead-letter:%b:%b" % (key, group), "*", *fields, *pairs
    )
    return int(client.xack(key, group, entry_id))
