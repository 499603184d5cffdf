"""``anabranch import``: streams of Redis, and small values, into a running server."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

import click

from anabranch.cli.address import Address, is_url, server_options
from anabranch.cli.options import taken
from anabranch.cli.transfer.carry import carry, conclude, select, transfer_options
from anabranch.cli.transfer.client import require_databases
from anabranch.cli.transfer.file_source import FileSource
from anabranch.cli.transfer.live_target import LiveTarget
from anabranch.cli.transfer.record import TransferOptions
from anabranch.cli.transfer.scan import ScanSource
from anabranch.cli.transfer.summary import Summary


@click.command(
    name="import",
    help="""Read keys from SOURCE and restore them in a running server.

SOURCE is an RDB file, - for one on standard input, or redis://[user:password@]host[:port][/db],
rediss:// or unix://PATH for a running Redis, whose keys are read one by one with SCAN and DUMP.
ANABRANCH_OTHER_AUTH may hold its password. To have all keys as they are at one moment, let
redis-cli fetch its file, as in the last example.

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
  redis-cli -h 10.0.0.5 --rdb dump.rdb && anabranch import dump.rdb
""",
)
@click.argument("source")
@server_options(timeout=300.0)
@transfer_options
@click.pass_context
def command(ctx: click.Context, /, source: str, **options: Any) -> None:
    """Connect to the target, and copy all keys of the source to it."""
    chosen = taken(TransferOptions, options)
    here = Address.of_options(**options)
    if here.db is not None:
        raise click.UsageError("-u: keys keep their databases; leave the number out")
    there = None
    if is_url(source):
        there = here.other(source, "SOURCE")
    elif source != "-" and not os.path.lexists(source):
        raise click.UsageError(f"SOURCE: {source}: No such file or directory")
    selection = select(chosen.databases, chosen.pattern, there.db if there else None)
    shown = str(there) if there else "standard input" if source == "-" else source
    summary = Summary("imported", shown, str(here), dry_run=chosen.dry_run)

    def transfer() -> None:
        # A file is verified before the server is bothered.
        with closing(ScanSource(there, selection) if there else FileSource(source)) as opened:
            for server in filter(None, (there, here)):
                require_databases(server, selection.databases)
            with closing(LiveTarget(here, summary, chosen)) as target:
                carry(opened, target, selection, summary, lossy=chosen.lossy)

    conclude(ctx, summary, transfer, as_json=chosen.as_json)
