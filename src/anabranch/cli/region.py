"""``anabranch region``: administration of a region that is not running."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import redis

from anabranch.cli.address import Address
from anabranch.cli.failures import Failed, message
from anabranch.cli.group import NearestGroup
from anabranch.cli.inspect_files import lines_of_failure, locate
from anabranch.cli.options import json_option
from anabranch.cli.salvage import Lost, RemainingRegions, bring_back, lost_in, noted, remember_done


@click.group(
    cls=NearestGroup,
    help="What is done about a region of an Active-Active cluster beside running it.",
)
def command() -> None:
    """The group itself has nothing to do."""


@command.command(
    context_settings={"ignore_unknown_options": True},
    help="""Salvage the data that only a removed region had.

A region that was removed while it could not be reached may have entries that no other region has.
The command reads them from its directory (the server must be stopped) and, with --to, adds them
under their IDs: for this the region's number joins once more, under a new epoch and with a
temporary empty directory, and is removed again at the end. Groups, acknowledgements and deletions
of the removed region are not restored; entries that it deleted itself stay deleted.

Without --to, or with --dry-run, the command only reports what there is. The directory records that
it was salvaged; after a failed attempt the next one adds only what is missing.

DIRECTIVES are those of 'anabranch serve' that are needed to join: --gossip-secret,
--tls-replication and its files. They are taken from the environment as well.

\b
Examples:
  anabranch region salvage --dir /var/lib/anabranch --to redis://eu.example:6379 --dry-run
  anabranch region salvage --dir /var/lib/anabranch --to redis://:secret@eu.example:6379
""",
)
@click.option(
    "--dir",
    "directory",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The directory of the removed region.",
)
@click.option("--to", "url", help="A member: redis://[user:password@]host[:port] or rediss://.")
@click.option("--cacert", help="Certificates to trust for rediss:// (PEM).")
@click.option("--dry-run", is_flag=True, help="Only report what would be added.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds to wait for the member.")
@json_option()
@click.argument("directives", nargs=-1, type=click.UNPROCESSED)
def salvage(
    directory: Path,
    dry_run: bool,
    as_json: bool,
    directives: tuple[str, ...],
    **member: Any,
) -> None:
    """Look for effects that only this directory has, and bring them back to the cluster."""
    address = _member_at(**member)
    if address is None and not dry_run:
        raise click.UsageError("name a member with --to, or give --dry-run")
    with lines_of_failure():
        files, _ = locate(directory)
        salvaged = noted(files)
        if salvaged is not None:
            _show({"salvaged": salvaged, "added": 0}, as_json=as_json)
            return
        try:
            cluster = None if address is None else RemainingRegions(address)
            lost = lost_in(files, cluster)
            report = _found(lost)
            if cluster is not None and not dry_run:
                report["added"] = bring_back(lost, cluster, directives, member["timeout"])
                remember_done(files)
        except redis.RedisError as problem:
            raise Failed(f"{member['url']}: {message(problem)}") from None
    _show(report, as_json=as_json)


def _member_at(url: str | None, cacert: str | None, timeout: float) -> Address | None:
    return None if url is None else Address(cacert=cacert, timeout=timeout).at_url(url, "--to")


def _found(lost: Lost) -> dict[str, Any]:
    return {
        "region": lost.region,
        "name": lost.name,
        "effects": {f"{each & 0xFF}.{each >> 8}": count for each, count in lost.effects.items()},
        "entries": sum(map(len, lost.entries.values())),
        "keys": len(lost.entries),
    }


def _show(report: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report))
        return
    if "salvaged" in report:
        print(f"It was salvaged on {report['salvaged']}: nothing to do")
        return
    name = report["name"]
    print(f"Region {report['region']}{f' ({name})' if name else ''} has effects that others lack:")
    for replica_id, count in sorted(report["effects"].items()):
        print(f"  {count:,} of region.epoch {replica_id}")
    print(f"Among them are {report['entries']:,} live entries in {report['keys']:,} keys")
    if "added" in report:
        print(f"{report['added']:,} entries were added")
    sys.stdout.flush()
