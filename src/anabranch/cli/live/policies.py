"""``anabranch policies``: which policies keys and patterns have, and what they have done."""

from __future__ import annotations

from typing import Any

import click

from anabranch.cli.live.shared import (
    on_server,
    print_json,
    print_table,
    running,
)
from anabranch.cli.options import json_option
from anabranch.cli.terminal import shown
from anabranch.cli.transfer.client import fields_of


@click.command(
    help="""Show the policies of keys and patterns whose name matches, and what they have done.

A name or pattern without GROUP is for all groups. What is in force for one group, and why, is the
reply of AB.POLICY GET key GROUP group.""",
)
@click.argument("pattern", default="*")
@json_option()
@on_server
def command(pattern: str, as_json: bool, db: int | None, **options: Any) -> None:
    """Print the policies that match, and what they have done since the start."""
    with running(db, options) as client:
        rules = [_rule(fields_of(row)) for row in client.execute_command("AB.POLICY LIST", pattern)]
        done = client.info("policies")
    figures = {name.removeprefix("policy_"): count for name, count in sorted(done.items())}
    if as_json:
        print_json({"policies": rules, "done": figures})
        return
    print_table(
        ["name", "is a", "group", "policies"],
        [
            [
                *(each["name"], each["type"], "all" if each["group"] is None else each["group"]),
                ", ".join(f"{name} {value}" for name, value in each["policies"].items()),
            ]
            for each in rules
        ],
    )
    print("since the start: " + done_since_the_start(done))
    print(
        f"scheduled: {done['scheduled_entries']:,} entries; the last one that was due came "
        f"{done['scheduled_late_ms']:,} ms late, {done['scheduled_failed']:,} attempts failed"
    )


def done_since_the_start(info: dict[str, Any]) -> str:
    """The figures of INFO on what policies have done, in words."""
    words = (
        "released",
        "redelivered",
        "dead_lettered",
        "given_up",
        "halted",
        "redriven",
        "trimmed",
    )
    found = [f"{info[f'policy_{word}']:,} {word.replace('_', '-')}" for word in words]
    return ", ".join([*found, f"{info['scheduled_added']:,} scheduled ones added"])


def _rule(facts: dict[bytes, Any]) -> dict[str, Any]:
    group, values = facts[b"group"], fields_of(facts[b"policies"])
    return {
        "name": shown(facts[b"name"]),
        "type": facts[b"type"].decode(),
        "group": None if group is None else shown(group),
        "policies": {shown(name): shown(value) for name, value in values.items()},
    }
