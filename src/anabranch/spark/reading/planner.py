"""Plans the next batch of a read: present, lost and expected entries."""

from __future__ import annotations

import logging
import math
import os
import time
from dataclasses import replace
from typing import Any, Final

from anabranch.sharing import share
from anabranch.spark.connection.client import ServerClient, connect
from anabranch.spark.options import OptionError, ReadOptions
from anabranch.spark.reading.hole_search import has_new_holes, holes_at
from anabranch.spark.reading.losses import Found, ServerBehindError, assess, unsubscribed
from anabranch.spark.reading.offsets import LogCursor, Logs, Range, Vector
from anabranch.spark.reading.partitions import partition_count
from anabranch.spark.reading.server_logs import ServerLogs
from anabranch.spark.runtime.logs import audible

_log = logging.getLogger(__name__)
_GUESSES_MAX: Final = 10  # of how many entries so many bytes have
_FULL: Final = 0.8  # a batch with this part of the bytes is large enough
_TELL_S: Final = 5.0  # between two lines while a server is waited for


def cores() -> int:
    """Of this machine, which is the driver's; nothing tells a data source about the executors'."""
    return os.cpu_count() or 1


class Planner:
    """The driver's side of a streaming read, with its memory between batches."""

    def __init__(self, options: ReadOptions) -> None:
        """Connects; raises `ServerUnreachable` and `ServerRefused`."""
        self._options = options
        self._client: ServerClient = connect(options.server)
        self._server: ServerLogs | None = None
        self._initial: Vector | None = None
        self._logs: Logs = {}
        self._target: Logs | None = None  # frozen for AvailableNow
        self._target_frontier_ms: int | None = None
        self._reported: list[str] = []  # of losses at the last query
        self._has_checked = False  # the names of regions
        self._quiet = False  # the last query found nothing to read
        self._told_removals = False  # by a batch without entries, in a run with a target
        self._advanced_at = time.monotonic()

    def close(self) -> None:
        """Return the connection."""
        self._client.close()

    def _server_at(self, start: Vector | None = None) -> ServerLogs:
        if self._server is None:
            known = [each.by_id for _, _, each in (start.items() if start is not None else ())]
            # A query that began by ID goes on by ID, even when the server learned positions.
            by_id = any(known) if known else None
            self._server = ServerLogs(self._options, self._client, by_id=by_id)
            if self._options.changes:
                self._server.require_positions()
        return self._server

    def freeze(self) -> None:
        """Limit the read to the entries that exist now."""
        # No offset is known yet, so the kind of server decides.
        server = ServerLogs(self._options, self._client)
        self._target_frontier_ms = self._known_until(server)
        self._target = server.logs()

    def _known_until(self, server: ServerLogs) -> int | None:
        """The frontier of the regions, if it is wanted; to be asked for before the logs are."""
        return None if self._options.frontier_interval_ms is None else server.frontier_ms()

    def initial(self) -> Vector:
        """Where a query without a checkpoint begins."""
        # Spark asks twice before the first batch; entries that arrive in between must be read.
        if self._initial is None:
            server, options = self._server_at(), self._options
            self._logs = server.logs()
            self._check_regions(server)
            found = server.place(
                self._logs, options.starting_offsets, options.starting_timestamp, "latest"
            )
            if options.changes:
                holes = found.holes or holes_at(self._client, found, None)
                found = replace(found, holes=holes)
            begin = Vector(found.cursors, holes=found.holes)
            self._initial = replace(found, initial=begin)
        return self._initial

    def _check_regions(self, server: ServerLogs) -> None:
        if not self._has_checked:
            server.check_regions()
            self._has_checked = True

    def selects(self, stream: str, region: str) -> bool:
        """Whether a region of a stream is read, as far as is known."""
        return self._server is None or self._server.selects(stream, region)

    def left(self, start: Vector) -> int:
        """Positions behind an offset, of what was there when it was frozen, or else last seen."""
        return Vector.at_end(self._logs if self._target is None else self._target).lag(start)

    def newest(self) -> dict[str, Any] | None:
        """The latest offset, as of the last look."""
        if not self._logs:
            return None
        return Vector.at_end(self._logs).to_dict()

    def next(self, start: Vector, limit: int | None) -> Vector | None:
        """The end of the next batch, None if there is nothing to read yet."""
        server = self._server_at(start)
        wait_ms = self._options.poll_timeout_ms if self._quiet and self._target is None else 0
        self._check_subscription(start, server)
        frontier_ms = self._target_frontier_ms
        if self._target is None:
            frontier_ms = self._known_until(server)
        self._logs = server.logs(wait_ms, start)
        self._check_regions(server)  # the options may be others than those at the beginning
        seen = assess(start, self._logs, server, self._target)
        if self._lacks(seen):
            seen = self._caught_up(seen, start, server)
        seen.refuse(losses=self._options.fail_on_data_loss)
        # Lost entries are found again at every query while the batch waits.
        if news := [each for each in seen.losses if each not in self._reported]:
            _log.warning("%s; going on, because failOnDataLoss=false", "; ".join(news))
        if news := [each for each in seen.set_back if each not in self._reported]:
            _log.warning("%s", "; ".join(news))
        self._reported = seen.losses + seen.set_back
        end = replace(self._reachable(start, seen), begins=seen.begins)
        ranges = end.ranges(start)
        lag = sum(len(each) or 1 for each in ranges)
        # A gap is skipped and reported once, even if no entry follows; and that all of a deleted
        # stream was read is recorded, because the server forgets the stream one day.
        ended = any(
            each.at_begin and each != start.get(stream, region)
            for stream, region, each in end.items()
        )
        is_due = self._is_due(frontier_ms, start) or self._has_removals(start, bool(ranges))
        self._quiet = not (seen.begins or ended or is_due) and (not ranges or self._too_few(lag))
        if self._quiet:
            return None
        self._advanced_at = time.monotonic()
        if limit is not None and lag > limit:
            end = replace(end, cursors=self._limited(end, ranges, limit, server))
        if self._options.max_bytes is not None:
            end = self._within_bytes(start, end, self._options.max_bytes, server)
        if self._options.changes:
            end = replace(end, holes=holes_at(self._client, end, start))
        begun = start.initial is None or (
            (start.initial.cursors, start.initial.holes) != (start.cursors, start.holes)
        )
        logs = self._logs if self._target is None else self._target
        has_all = frontier_ms is not None and not Vector.at_end(logs).ranges(end)
        return replace(
            end,
            frontier_ms=max(frontier_ms or 0, start.frontier_ms or 0)
            if has_all
            else start.frontier_ms,
            splits=partition_count(self._options, end.lag(start), cores()),
            initial=None if begun else start.initial,
        )

    def _reachable(self, start: Vector, seen: Found) -> Vector:
        """The ends of the logs, or the frozen ones, and those of `start` in other streams."""
        server = self._server_at()
        cursors: dict[str, dict[str, LogCursor]] = {}
        for stream, region, cursor in start.items():
            kept = region in self._logs.get(stream, {}) or bool(region)
            if kept or not (server.subscribes(stream) and server.selects(stream, region)):
                cursors.setdefault(stream, {})[region] = cursor
        for stream, found in self._logs.items():
            for region, log in found.items():
                end = log.end
                begin = start.get(stream, region)
                jump = seen.begins.get(stream, {}).get(region)
                if self._target is not None:
                    frozen = self._target.get(stream, {}).get(region)
                    if frozen is None and not log.is_former:
                        continue
                    if frozen is None:
                        frozen = log
                    if frozen.incarnation == end.incarnation and frozen.end.behind(end):
                        end = frozen.end
                    again = frozen.incarnation < log.incarnation and not log.is_former
                    if again and begin is not None:
                        # A later run reads what was made again in this one, and reports what was
                        # lost of the former stream behind the target.
                        end = begin
                if jump is not None:
                    # Entries may be lost beyond the target, too; they are reported once.
                    behind = LogCursor(log.incarnation, jump.position, jump.last_id)
                    end = behind if end.behind(behind) else end
                ended = log.is_former and begin is not None and begin.incarnation < end.incarnation
                if begin is None or jump is not None or begin.behind(end) or ended:
                    cursors.setdefault(stream, {})[region] = end
        return Vector(cursors)

    def _is_due(self, frontier_ms: int | None, start: Vector) -> bool:
        """Whether the frontier alone is worth a batch."""
        if frontier_ms is None:
            return False
        least = self._options.frontier_interval_ms if self._target is None else 1
        return frontier_ms - (start.frontier_ms or 0) >= (least or 1)

    def _has_removals(self, start: Vector, has_entries: bool) -> bool:
        """Whether entries that were read are gone, and a batch may say so.

        A run that ends at a target has one batch of removals alone: it would not end while a stream
        is trimmed all the time.
        """
        if not self._options.changes or (self._told_removals and not has_entries):
            return False
        found = any(
            has_new_holes(start, stream, region, log)
            for stream, logs in self._logs.items()
            for region, log in logs.items()
        )
        self._told_removals = found and self._target is not None and not has_entries
        return found

    def _within_bytes(self, start: Vector, end: Vector, most: int, server: ServerLogs) -> Vector:
        """As far as about so many bytes go; at least one entry.

        The size of a batch is guessed by some entries all over it. So the count of entries is
        searched for, between one that is too small and one that is too large.
        """
        whole, every = end, end.ranges(start)
        found, ranges = None, every
        least, count = 0, sum(len(each) or 1 for each in every)
        too_many = count + 1
        for _ in range(_GUESSES_MAX):
            nbytes = server.nbytes(ranges) if count > 1 else 0
            if nbytes > most:
                too_many = count
            else:
                found, least = end, max(count, least)
            if too_many - least <= 1 or most * _FULL <= nbytes <= most:
                break
            guess = math.isqrt(least * too_many) or count * most // nbytes
            count = min(max(guess, least + 1), too_many - 1)
            end = replace(end, cursors=self._limited(whole, every, count, server))
            ranges = end.ranges(start)
        return end if found is None else found

    def _too_few(self, lag: int) -> bool:
        least = self._options.min_entries
        if least is None or lag >= least or self._target is not None:
            return False
        waited_ms = (time.monotonic() - self._advanced_at) * 1000
        return waited_ms < self._options.max_trigger_delay_ms

    def _check_subscription(self, start: Vector, server: ServerLogs) -> None:
        if self._options.allow_subscription_change:
            return
        if gone := unsubscribed(start, server):
            raise OptionError(
                f"the subscription changed: the checkpoint has read {', '.join(gone)}, which the "
                "options do not name any more. Name it again (subscribe, subscribePattern or "
                "assign), or give allowSubscriptionChange=true: it is left where it was then, and "
                "other streams are read from their first entry"
            )

    def _lacks(self, seen: Found) -> bool:
        """Whether the read must wait for missing entries; not if it may lose deleted ones."""
        return bool(seen.behind or (seen.absent and self._options.fail_on_data_loss))

    def _caught_up(self, seen: Found, start: Vector, server: ServerLogs) -> Found:
        """Wait until the server has the entries that were read; may raise `ServerBehindError`.

        A server of its own is not waited for: nobody brings what it lacks. What may be deleted as
        well is in the result, if it never came.
        """
        comes = any(region for _, region, _ in start.items())
        seconds = self._options.catch_up_timeout_ms / 1000 if comes else 0.0
        deadline = time.monotonic() + seconds
        logged_at = 0.0
        audible()
        while self._lacks(seen):
            left = deadline - time.monotonic()
            if left <= 0 and seen.behind:
                raise ServerBehindError(f"{'; '.join(seen.behind)}. Waited for {seconds:g} s")
            if left <= 0:
                break
            if time.monotonic() - logged_at >= _TELL_S:
                logged_at = time.monotonic()
                lacking = "; ".join(seen.behind + seen.absent)
                _log.warning("%s; waiting up to %.0f s more", lacking, left)
            self._logs = server.logs(max(1, int(min(left, 1.0) * 1000)), start)
            seen = assess(start, self._logs, server, self._target)
        return seen

    def _limited(
        self, end: Vector, ranges: list[Range], limit: int, server: ServerLogs
    ) -> dict[str, dict[str, LogCursor]]:
        """As far as so many live entries go, but not beyond `end`."""
        begins: dict[str, dict[str, LogCursor]] = {}
        for each in ranges:
            begin = LogCursor(each.incarnation, each.first, each.after)
            begins.setdefault(each.stream, {})[each.region] = begin
        cursors = {stream: dict(regions) for stream, regions in end.cursors.items()}
        if server.by_id:
            shares = share({(each.stream, each.region): len(each) or 1 for each in ranges}, limit)
            for stream, stops in cursors.items():
                if stream in begins:
                    stops[""] = server.advance(
                        stream, begins[stream][""], stops[""], shares[stream, ""]
                    )
            return cursors
        for stream, reached in server.reaches(begins, limit).items():
            for region, reach in reached.items():
                stop = reach.until
                if stop.last_id == "0-0":
                    stop = replace(stop, last_id=begins[stream][region].last_id)
                if stop.behind(cursors[stream][region]):
                    cursors[stream][region] = stop
        return cursors

    def commit(self, end: Vector) -> None:
        """Show the progress in ``commitGroup``."""
        if self._options.commit_group is not None:
            self._server_at(end).commit(self._options.commit_group, end)
