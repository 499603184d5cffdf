"""A page on one run of a command: one file of HTML, with its style in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from string import Template
from typing import Any, Final

from click.core import ParameterSource

from anabranch.cli.spark.record import Record
from anabranch.cli.spark.results import figures_of, findings_of, lines_of
from anabranch.version import __version__

_PAGE: Final = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; }
h1 { font-size: 1.6rem; margin-bottom: 0; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0;
  border-bottom: 1px solid #ddd; overflow-wrap: anywhere; }
th { font-weight: 600; white-space: nowrap; }
p.when { color: #555; margin-top: .2rem; }
ul { margin: 0; padding-left: 1.2rem; }
.passed { color: #00694c; } .failed { color: #b03a00; }
</style>
</head>
<body>
<h1>$title: <span class="$verdict">$verdict</span></h1>
<p class="when">$when; Anabranch $version</p>
$body
</body>
</html>
""")


def page_of(record: Record) -> str:
    """The page; everything in it that was given is escaped, and passwords are left out."""
    seconds = ((record.ended or record.began) - record.began).total_seconds()
    result = record.result
    failure = re.sub(r"://\S*@", "://***@", record.failure or "")
    found = set(map(str, findings_of(result)))
    figures = [] if result is None else figures_of(result)
    parts = [
        _section("Failure", _items([failure] if failure else [])),
        _section("Findings", _items(each for each in _lines(result) if each in found)),
        _section("Result", _table(("Figure", "Value"), (map(escape, each) for each in figures))),
        _section("Details", _items(each for each in _lines(result) if each not in found)),
        _section("What was run", _table(("Option", "Value"), _options(record))),
        _section("Progress", _table(("Time (UTC)", "Step"), _progress(record))),
    ]
    return _PAGE.substitute(
        title=escape(f"anabranch spark {record.context.info_name}"),
        verdict="failed" if record.failed else "passed",
        when=f"{record.began:%Y-%m-%d %H:%M:%S} UTC, {seconds:.1f} s",
        version=escape(__version__),
        body="\n".join(filter(None, parts)),
    )


def _lines(result: Any) -> list[str]:
    return [] if result is None else lines_of(result)


def _section(title: str, content: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{content}" if content else ""


def _items(texts: Iterable[str]) -> str:
    made = "".join(f"<li>{escape(each)}</li>" for each in texts)
    return f"<ul>{made}</ul>" if made else ""


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Cells of `rows` are HTML; empty without rows."""
    made = ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows]
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    return "\n".join([f"<table><tr>{head}</tr>", *made, "</table>"]) if made else ""


def _options(record: Record) -> Iterator[tuple[str, str]]:
    """What was given, and what holds without being given; no passwords."""
    context = record.context
    for each in context.command.params:
        value = context.params.get(each.name or "")
        if value in (None, (), {}, "", False):
            continue
        name = each.opts[0] if each.opts[0].startswith("-") else each.human_readable_name
        source = context.get_parameter_source(each.name or "")
        note = " (default)" if source is ParameterSource.DEFAULT else ""
        if isinstance(value, dict):
            value = tuple(f"{key}={text}" for key, text in value.items())
        for one in value if isinstance(value, tuple) else (value,):
            yield escape(name), escape(_shown(each.name or "", str(one))) + note


def _shown(kind: str, text: str) -> str:
    name, _, value = text.partition("=")
    if kind == "url":
        return _without_user(text)
    if kind == "options" and name.lower() == "password":
        return f"{name}=***"
    if kind == "region_urls" or (kind == "options" and name.lower() == "url"):
        return f"{name}={_without_user(value)}"
    return text


def _without_user(url: str) -> str:
    """An address without user and password."""
    return re.sub(r"^(.*?://)?.*@", r"\1***@", url)


def _progress(record: Record) -> Iterator[tuple[str, str]]:
    for at, step in record.steps:
        yield f"{at:%Y-%m-%d %H:%M:%S}", escape(step.text)
