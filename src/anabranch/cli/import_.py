"""``anabranch import``: streams of Redis, and small values, into a running server."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, closing
from typing import Any

import click

from anabranch.cli.address import Address, RefusedByServer, is_url, server_options
from anabranch.cli.options import taken
from anabranch.cli.remedies import message
from anabranch.cli.transfer.carry import carry, conclude, select, transfer_options
from anabranch.cli.transfer.client import require_databases
from anabranch.cli.transfer.file_source import file_source
from anabranch.cli.transfer.live_target import LiveTarget
from anabranch.cli.transfer.record import Selection, Source, TransferFailed, TransferOptions
from anabranch.cli.transfer.scan import ScanSource
from anabranch.cli.transfer.summary import Summary
from anabranch.cli.transfer.sync import sync_source


@click.command(
    name="import",
    help="""Read keys from SOURCE and restore them in a running server.

SOURCE is an RDB file, - for one on standard input, or redis://[user:password@]host[:port][/db],
rediss:// or unix://PATH for a running Redis. That one is asked for a full synchronisation, as a
replica would; if it refuses, and with --scan, its keys are read one by one with SCAN and DUMP.
ANABRANCH_OTHER_AUTH may hold its password.

The options -h ... --user and -u name the server that the keys go to; --tls and the options for
certificates hold for it, and for a rediss:// SOURCE too. A file is read to its end before anything
is restored.

Streams, strings, lists and sets are restored, in the databases they come from; other types are
counted and named. Keys that exist are refused without --replace. Exit 0 if all that can be kept
arrived, 1 if not, 2 for wrong usage.

\b
Examples:
  anabranch import dump.rdb --dry-run
  anabranch import dump.rdb -p 6380 --match 'orders:*'
  anabranch import redis://10.0.0.5:6379 --replace
""",
)
@click.argument("source")
@server_options(timeout=300.0)
@click.option("--scan", is_flag=True, help="Read a running Redis with SCAN and DUMP.")
@transfer_options
@click.pass_context
def command(ctx: click.Context, /, source: str, scan: bool, **options: Any) -> None:
    """Connect to the target, and copy all keys of the source to it."""
    chosen = taken(TransferOptions, options)
    here = Address.of_options(**options)
    if here.db is not None:
        raise click.UsageError("-u: keys keep their databases; leave the number out")
    there = None
    if is_url(source):
        there = here.other(source, "SOURCE")
    elif scan:
        raise click.UsageError("--scan is for a running Redis")
    elif source != "-" and not os.path.lexists(source):
        raise click.UsageError(f"SOURCE: {source}: No such file or directory")
    selection = select(chosen.databases, chosen.pattern, there.db if there else None)
    shown = str(there) if there else "standard input" if source == "-" else source
    summary = Summary("imported", shown, str(here), dry_run=chosen.dry_run)

    def transfer() -> None:
        with ExitStack() as open_ends:
            # A file is verified before the server is bothered; a synchronisation begins only when
            # there is somewhere to put it.
            opened: Source | None = None
            if there is None:
                opened = open_ends.enter_context(closing(file_source(source)))
            for server in filter(None, (there, here)):
                require_databases(server, selection.databases)
            target = open_ends.enter_context(closing(LiveTarget(here, summary, chosen)))
            if there is not None:
                opened = open_ends.enter_context(closing(_live(there, selection, scan=scan)))
            assert opened is not None
            carry(opened, target, selection, summary, lossy=chosen.lossy)

    conclude(ctx, summary, transfer, as_json=chosen.as_json)


def _live(address: Address, selection: Selection, *, scan: bool) -> Source:
    if not scan:
        try:
            return sync_source(address)
        except RefusedByServer as problem:
            print(
                f"anabranch: {address} refuses SYNC ({problem}); reading with SCAN and DUMP",
                file=sys.stderr,
            )
    try:
        return ScanSource(address, selection)
    except OSError as problem:
        raise TransferFailed(f"{address}: {message(problem, address)}") from None
