"""The operator's log: an event name and fields per line, in four formats.

``legacy`` looks like Redis's log, ``logfmt`` and ``json`` are for machines, ``auto`` is readable
on a terminal and JSON elsewhere. It uses ``logging``, so a program that embeds the server may
attach its own handlers to the logger ``anabranch``.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from anabranch.config.settings import Settings
from anabranch.errors import ConfigError
from anabranch.server.disk import has_name

LOGGER: Final = logging.getLogger("anabranch")

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "verbose": logging.INFO - 5,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "nothing": logging.CRITICAL + 1,
}
_NAMES: Final = {"debug": 10, "verbose": 15, "info": 20, "warning": 30, "error": 40}
_COLOURS: Final = {10: "2", 15: "2", 20: "32", 30: "33", 40: "31"}

SPARING_S: Final = 1.0
"""The least time between two lines of the same event."""

_told: Final[
    dict[tuple[str, str], tuple[float, int]]
] = {}  # the last line, and how many were left out since

logging.addLevelName(15, "VERBOSE")


def emit(level: str, event: str, /, *, exc: BaseException | None = None, **fields: object) -> None:
    """Write one line: an event and its fields."""
    number = _NAMES[level]
    if LOGGER.isEnabledFor(number):
        LOGGER.log(number, event, extra={"fields": fields}, exc_info=exc)


def announce(event: str, /, **fields: object) -> None:
    """Write a line of level info whatever ``loglevel`` is, because a script may wait for it."""
    LOGGER.handle(_record("info", event, fields))


def _record(level: str, event: str, fields: Mapping[str, object]) -> logging.LogRecord:
    return LOGGER.makeRecord(
        LOGGER.name, _NAMES[level], __file__, 0, event, (), None, extra={"fields": fields}
    )


def emit_sparingly(
    level: str,
    event: str,
    /,
    *,
    about: str = "",
    exc: BaseException | None = None,
    **fields: object,
) -> None:
    """Log an event that clients can cause at will: one line a second for each event.

    The next line reports how many were left out. ``about`` distinguishes events of one name; it
    must not be a value that clients choose.
    """
    now = time.monotonic()
    told_at, left_out = _told.get((event, about), (-SPARING_S, 0))
    if now - told_at < SPARING_S:
        _told[event, about] = told_at, left_out + 1
        return
    _told[event, about] = now, 0
    if about:
        fields["about"] = about
    if left_out:
        fields["left_out"] = left_out
    emit(level, event, exc=exc, **fields)


# -- formats ------------------------------------------------------------------------------------


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields


def _event(record: logging.LogRecord) -> str:
    return _printable(record.getMessage())


def _printable(text: str) -> str:
    """The text on one line, with JSON's escapes for what a terminal could act on or hide.

    Strangers choose parts of some lines.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def _plain(value: object) -> str:
    """A value in ``key=value``, quoted where necessary."""
    text = str(value)
    if not text or not text.isprintable() or any(char in text for char in ' "=\\'):
        return _printable(json.dumps(text, ensure_ascii=False))
    return text


def _pairs(fields: dict[str, Any]) -> str:
    return "".join(f" {name}={_plain(value)}" for name, value in fields.items())


class _Formatter(logging.Formatter):
    """The common part of all formats: time and tracebacks."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings

    def time(self, record: logging.LogRecord, *, human: bool) -> str:
        """The time by ``log-timestamp-format``; Redis's form only in formats for reading."""
        style = self.settings.log_timestamp_format
        if style == "milliseconds":
            return str(int(record.created * 1000))
        moment = datetime.fromtimestamp(record.created, UTC).astimezone()
        if style == "legacy" and human:
            return f"{moment:%d %b %Y %H:%M:%S}.{moment.microsecond // 1000:03d}"
        return moment.isoformat(timespec="milliseconds")

    def trace(self, record: logging.LogRecord) -> str:
        """The traceback; without the message where it may contain user data."""
        if not record.exc_info:
            return ""
        if not self.settings.hide_user_data_from_log:
            return self.formatException(record.exc_info)
        kind, _, trace = record.exc_info
        places = "".join(traceback.format_tb(trace))
        return f"Traceback (most recent call last):\n{places}{kind.__name__ if kind else ''}"

    def below(self, record: logging.LogRecord) -> str:
        """The traceback in lines that cannot look like lines of the log."""
        trace = self.trace(record)
        return "".join(f"\n  {_printable(each)}" for each in trace.split("\n")) if trace else ""


class LegacyFormatter(_Formatter):
    """``pid:M 20 Nov 2026 21:22:19.615 * event``, or ``* message event=...`` if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, tracebacks below."""
        sign = {10: ".", 15: "-", 20: "*"}.get(record.levelno, "#")
        fields, text = dict(_fields(record)), _event(record)
        if "message" in fields:
            text = f"{_printable(str(fields.pop('message')))} event={text}"
        line = f"{record.process}:M {self.time(record, human=True)} {sign} {text}{_pairs(fields)}"
        return line + self.below(record)


class TerminalFormatter(_Formatter):
    """Time, level, event, fields; coloured where the terminal allows."""

    def __init__(self, settings: Settings, *, colours: bool) -> None:
        super().__init__(settings)
        self.colours = colours

    def format(self, record: logging.LogRecord) -> str:
        """One line, tracebacks below."""
        moment = datetime.fromtimestamp(record.created, UTC).astimezone()
        level = f"{record.levelname.lower():<7}"
        if self.colours:
            level = f"\x1b[{_COLOURS.get(record.levelno, '0')}m{level}\x1b[0m"
        line = f"{moment:%H:%M:%S} {level} {_event(record)}{_pairs(_fields(record))}"
        return line + self.below(record)


class LogfmtFormatter(_Formatter):
    """``ts=... level=info event=server.stopped key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, tracebacks quoted."""
        trace = self.trace(record)
        fields = _fields(record) | ({"traceback": trace} if trace else {})
        return (
            f"ts={self.time(record, human=False)} level={record.levelname.lower()} "
            f"event={_plain(_event(record))}{_pairs(fields)}"
        )


class JsonFormatter(_Formatter):
    """Formats a log record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Fields stand beside time, level and event."""
        line: dict[str, object] = {
            "ts": self.time(record, human=False),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **_fields(record),
        }
        trace = self.trace(record)
        if trace:
            line["traceback"] = trace
        return _printable(json.dumps(line, ensure_ascii=False, default=str))


def _formatter(settings: Settings, *, is_terminal: bool) -> logging.Formatter:
    style = settings.log_format
    if style == "legacy":
        return LegacyFormatter(settings)
    if style == "logfmt":
        return LogfmtFormatter(settings)
    if style == "auto" and is_terminal:
        colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return TerminalFormatter(settings, colours=colours)
    return JsonFormatter(settings)


# -- where to -----------------------------------------------------------------------------------


class _Syslog(logging.Handler):
    """The log of the system, which adds the time itself."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        import syslog  # noqa: PLC0415 - not on every system, rarely wanted

        self._syslog = syslog
        facility = getattr(syslog, f"LOG_{settings.syslog_facility.upper()}")
        syslog.openlog(settings.syslog_ident, syslog.LOG_PID, facility)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one formatted line of the log."""
        priority = {10: 7, 15: 6, 20: 5, 30: 4}.get(record.levelno, 3)
        self._syslog.syslog(priority, f"{_event(record)}{_pairs(_fields(record))}")


class _Output(logging.Handler):
    """A file or standard output, written without a buffer: nothing is left over for the end.

    Lines that cannot be written are lost, and the next one that can be follows their count. They
    are not reported elsewhere: standard error may be as full, or a pipe that nobody reads.
    """

    def __init__(self, descriptor: int, path: str = "") -> None:
        """``path``: the file is opened again when it was moved away, as logrotate does."""
        super().__init__()
        self.descriptor = descriptor
        self.path = path
        self._lost = 0
        self._is_torn = False  # a part of a lost line was written

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, after the count of those that were lost before it."""
        try:
            lines = [self.format(record)]
            if self._lost:
                count = _record("warning", "log.lines_lost", {"lines": self._lost})
                lines.insert(0, self.format(count))
            text = "\n" * self._is_torn + "\n".join(lines) + "\n"
        except Exception:
            self.handleError(record)
            return
        left = text.encode("utf-8", "backslashreplace")
        try:
            self._follow()
            while left:
                left = left[os.write(self.descriptor, left) :]
                self._is_torn = True
            self._lost, self._is_torn = 0, False
        except OSError:
            self._lost += 1

    def _follow(self) -> None:
        if self.path and not has_name(os.fstat(self.descriptor), self.path):
            descriptor = _open(self.path)
            os.close(self.descriptor)
            self.descriptor = descriptor

    def close(self) -> None:
        """Close the file; standard output stays open."""
        super().close()
        if self.path:
            with suppress(OSError):
                os.close(self.descriptor)


def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)


def open_logs(settings: Settings) -> None:
    """Attach the handlers of the settings; those of an earlier call are removed."""
    close_logs()
    if settings.logfile:
        try:
            handler = _Output(_open(settings.logfile), settings.logfile)
        except OSError as problem:
            raise ConfigError(
                f"cannot write logfile '{settings.logfile}': {problem.strerror}"
            ) from None
    else:
        sys.stdout.flush()
        handler = _Output(sys.stdout.fileno())
    LOGGER.addHandler(handler)
    if settings.syslog_enabled:
        LOGGER.addHandler(_Syslog(settings))
    LOGGER.propagate = False
    set_levels(settings)


def set_levels(settings: Settings) -> None:
    """Take over ``loglevel`` and the formats."""
    LOGGER.setLevel(_LEVELS[settings.loglevel])
    for handler in LOGGER.handlers:
        if isinstance(handler, _Output):
            is_terminal = not handler.path and os.isatty(handler.descriptor)
            handler.setFormatter(_formatter(settings, is_terminal=is_terminal))


def close_logs() -> None:
    """Detach and close what :func:`open_logs` attached."""
    for handler in list(LOGGER.handlers):
        LOGGER.removeHandler(handler)
        handler.close()
