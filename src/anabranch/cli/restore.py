"""``anabranch restore``: marks files that were put back from a backup."""

from __future__ import annotations

import json
from pathlib import Path

import click

from anabranch.cli.failures import Failed
from anabranch.cli.inspect_files import lines_of_failure, locate, locked
from anabranch.cli.options import json_option
from anabranch.node.cluster_notes import forget_epoch
from anabranch.oplog.inspection import Survey
from anabranch.oplog.manifest import ManifestFile


@click.command(epilog="\b\nExample:\n  anabranch restore /var/lib/anabranch/appendonlydir")
@click.argument("path", metavar="DIR", type=click.Path(exists=True, path_type=Path))
@json_option()
def command(path: Path, as_json: bool) -> None:
    """Mark DIR as set back: to a backup, or to an older state of its volume or machine.

    Run it before a server starts from such files. The next start then accepts the files as they
    are, whatever the manifest says about newer files. A region lacks what it did after the files
    were copied, and other regions may have it: so it opens a new epoch, in which it numbers its
    effects from 1 again, and gets back what the others have.
    """
    with lines_of_failure():
        directory, only = locate(path)
        survey = Survey(directory)
        if only is not None or not (survey.segments or survey.snapshots):
            raise Failed(f"{path} holds no log: name the directory that a server has its files in")
        with locked(directory):
            had_epoch = forget_epoch(directory)
            ManifestFile(directory).clear()
    if as_json:
        print(json.dumps({"directory": str(directory.path), "new_epoch": had_epoch}))
    elif had_epoch:
        print(f"{directory.path}: a region that starts from it begins a new epoch")
    else:
        print(f"{directory.path}: a start takes it as it is")
