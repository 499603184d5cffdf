"""``anabranch export``: the keys of a running server into an RDB file or another server."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click

from anabranch.cli.address import Address, is_url, server_options
from anabranch.cli.failures import Failed
from anabranch.cli.options import taken
from anabranch.cli.transfer.carry import carry, conclude, select, transfer_options
from anabranch.cli.transfer.client import require_databases
from anabranch.cli.transfer.file_target import FileTarget
from anabranch.cli.transfer.live_target import LiveTarget
from anabranch.cli.transfer.record import TransferOptions
from anabranch.cli.transfer.scan import ScanSource
from anabranch.cli.transfer.summary import Summary
from anabranch.rdb.payload import RDB_VERSION


@click.command(
    help="""Read the keys of a running server and write them to TARGET.

TARGET is the name of an RDB file, or redis://[user:password@]host[:port], rediss:// or unix://PATH
for a running server of Redis 7.0 or newer. ANABRANCH_OTHER_AUTH may hold that one's password.

The options -h ... --user and -u name the server that the keys come from; --tls and the options for
certificates hold for it, and for a rediss:// TARGET too. A file appears under its name when it is
complete. To have it loaded, stop Redis and let its dbfilename name it.

\b
--rdb-version says what the target reads:
  10  Redis 7.0                          13  Redis 8.6: idempotent producers
  11  Redis 7.2, Valkey                  14  Redis 8.8, 'anabranch import': NACKed entries
  12  Redis 7.4                              (default for files)
A running server is asked. Streams that hold what the version has no place for are named at once,
and no file is written without them unless --lossy allows it.

Exit 0 if everything was written, 1 if not, 2 for wrong usage.

\b
Examples:
  anabranch export dump.rdb
  anabranch export dump.rdb --rdb-version 10 --match 'orders:*'
  anabranch export redis://10.0.0.5:6379 --replace
""",
)
@click.argument("target")
@server_options(timeout=300.0)
@transfer_options
@click.pass_context
def command(ctx: click.Context, /, target: str, **options: Any) -> None:
    """Move the selected keys of the server into a file or another server."""
    chosen = taken(TransferOptions, options)
    here = Address.of_options(**options)
    there = None
    if target == "-":
        raise click.UsageError("TARGET: a file or a URL; an export does not go to standard output")
    if is_url(target):
        there = here.other(target, "TARGET")
        if there.db is not None:
            raise click.UsageError("TARGET: keys keep their databases; leave the number out")
    selection = select(chosen.databases, chosen.pattern, here.db)
    shown = str(there) if there else target
    summary = Summary("exported", str(here), shown, dry_run=chosen.dry_run)

    def transfer() -> None:
        for server in filter(None, (here, there)):
            require_databases(server, selection.databases)
        source = ScanSource(here, selection)
        if there is None:
            version = chosen.rdb_version or RDB_VERSION
            file = FileTarget(target, summary, chosen, version)
            if version < RDB_VERSION and not chosen.lossy:
                for db, key, lost in source.losing(version):
                    summary.loses(db, key, lost, lossy=False)
                if summary.would_lose:
                    raise Failed(file.incomplete)
            with file:
                carry(source, file, selection, summary, lossy=chosen.lossy)
            return
        with closing(LiveTarget(there, summary, chosen)) as live:
            carry(source, live, selection, summary, lossy=chosen.lossy)

    conclude(ctx, summary, transfer, as_json=chosen.as_json)
