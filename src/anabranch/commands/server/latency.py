"""LATENCY: spikes that the latency monitor has recorded, and the durations of commands.

The monitor (``metrics/latency.py``) has two events: ``command`` and, for commands with that flag,
``fast-command``.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.engine.context import Context
from anabranch.engine.served_command import ServedCommand
from anabranch.errors import CommandError
from anabranch.metrics.latency import LatencyEvent, cumulative_usec
from anabranch.resp.encode import EMPTY_ARRAY, integer
from anabranch.resp.values import Map, Verbatim

_GRAPH_WIDTH = 80
_GRAPH_STEPS = "_.-`"
_GRAPH_ROWS = 4


def latest(ctx: Context, _args: list[bytes]) -> bytes:
    """LATENCY LATEST: the newest and the greatest delay of each event."""
    rows = []
    for name, event in ctx.server.latency.events.items():
        unix_seconds, ms = event.samples[-1]
        rows.append([name, unix_seconds, ms, event.max_ms])
    return ctx.reply(rows)


def history(ctx: Context, args: list[bytes]) -> bytes:
    """LATENCY HISTORY event: when it took long, and how many milliseconds."""
    event = ctx.server.latency.events.get(args[2].decode("latin-1"))
    if event is None:
        return EMPTY_ARRAY
    return ctx.reply([list(sample) for sample in event.samples])


def reset(ctx: Context, args: list[bytes]) -> bytes:
    """LATENCY RESET [event ...]."""
    return integer(ctx.server.latency.reset([name.decode("latin-1") for name in args[2:]]))


def histogram(ctx: Context, args: list[bytes]) -> bytes:
    """LATENCY HISTOGRAM [command ...]; a container stands for its sub-commands."""
    pairs = []
    for entry in _chosen(ctx, args[2:]):
        if entry.calls:
            figures = dict(cumulative_usec(entry.histogram))
            value = {b"calls": entry.calls, b"histogram_usec": figures}
            pairs.append((entry.command.full_name, value))
    return ctx.reply(Map(pairs))


def _chosen(ctx: Context, names: list[bytes]) -> Iterable[ServedCommand]:
    if not names:
        yield from ctx.server.dispatcher.all_entries()
    for name in names:
        entry = ctx.server.dispatcher.find(name.split(b"|", 1))
        if entry is not None and entry.command.full_name.encode() == name.lower():
            yield entry
            yield from entry.subcommands.values()


def graph(ctx: Context, args: list[bytes]) -> bytes:
    """LATENCY GRAPH event: the samples as a small drawing."""
    name = args[2].decode("latin-1")
    event = ctx.server.latency.events.get(name)
    if event is None:
        raise CommandError(b"ERR No samples available for event '%b'" % args[2])
    return ctx.reply(Verbatim(_drawing(name, event, ctx.now_ms // 1000)))


def _drawing(name: str, event: LatencyEvent, now_s: int) -> str:
    """Bars from the lowest to the highest sample, the age of each written downwards below."""
    samples = list(event.samples)[-_GRAPH_WIDTH:]
    values = [ms for _, ms in samples]
    low, high = min(values), max(values)
    levels = _GRAPH_ROWS * len(_GRAPH_STEPS)
    heights = [(ms - low) * (levels - 1) // max(high - low, 1) for ms in values]
    lines = [f"{name} - high {high} ms, low {low} ms (all time high {event.max_ms} ms)"]
    lines.append("-" * _GRAPH_WIDTH)
    for row in range(_GRAPH_ROWS - 1, -1, -1):
        line = ""
        for height in heights:
            bar, step = divmod(height, len(_GRAPH_STEPS))
            line += "#" if bar > row else _GRAPH_STEPS[step] if bar == row else " "
        lines.append(line.rstrip())
    ages = [_age(now_s - unix_seconds) for unix_seconds, _ in samples]
    lines += [
        "".join([age[row] if row < len(age) else " " for age in ages]).rstrip()
        for row in range(max(map(len, ages)))
    ]
    return "\n".join(lines) + "\n"


def _age(seconds: int) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"


def doctor(ctx: Context, _args: list[bytes]) -> bytes:
    """LATENCY DOCTOR: the figures as sentences."""
    monitor = ctx.server.latency
    if not monitor.enabled and not monitor.events:
        text = (
            "Latency monitoring is off. Switch it on with CONFIG SET latency-monitor-threshold "
            "<milliseconds>: requests that take at least so long are then noted.\n"
        )
    elif not monitor.events:
        text = "No latency spike was seen. The server keeps its promises.\n"
    else:
        lines = ["These latency spikes were seen:", ""]
        for name, event in monitor.events.items():
            values = [ms for _, ms in event.samples]
            period_s = event.samples[-1][0] - event.samples[0][0]
            lines.append(
                f"- {name}: {len(values)} spikes within {period_s} seconds, "
                f"{sum(values) / len(values):.0f} ms on average, worst {event.max_ms} ms."
            )
        lines += [
            "",
            "SLOWLOG GET names the requests. Ranges without COUNT and large pipelines are the "
            "usual causes.",
        ]
        text = "\n".join(lines) + "\n"
    return ctx.reply(Verbatim(text))
