"""Status rows: regions exchange them on change and once a second.

A row shows that its sender is alive, which effects of this region it has, which effects it could
relay, its clock, and what it has on its disk. Rows of other regions are passed on, so that regions
without a link know about each other.
"""

from __future__ import annotations

from typing import Final

from anabranch.keyspace.replica import epoch_of, region_of
from anabranch.keyspace.version_vectors import covers
from anabranch.replication.frames import Reason, Refusal, StatusRow, StatusRows
from anabranch.replication.links import Links
from anabranch.replication.peer import PeerSession
from anabranch.replication.receiving import Receiver

ROW_EVERY_MS: Final = 50.0
"""The least time between two rows."""

HEARTBEAT_MS: Final = 1000.0
"""The time after which a row is sent without a change."""

ROWS_UNDER_WAY_MAX: Final = 32
"""Rows that may be unanswered: a slower link gets only heartbeats until some are answered."""

FEATURE_LEVEL_MIN: Final = 1
"""The feature level of a member that has not reported one."""


class Gossip:
    """The row of this region and the rows of others."""

    def __init__(self, links: Links, receiver: Receiver) -> None:
        self._links = links
        self._receiver = receiver
        self._version = links.config.wall_ms()
        self.watermark: dict[int, int] = {}
        """The watermark that was last passed to the region."""

    # -- sending ------------------------------------------------------------------------------

    def _own_row(self) -> StatusRow:
        links = self._links
        return StatusRow(
            links.region,
            links.replica_id,
            self._version,
            dict(links.local.vector),
            dict(links.local.durable),
            self._receiver.have(),
            links.config.feature_level,
            sorted(session.region for session in links.up()),
        )

    def send_due(self, now_ms: float) -> None:
        """Send rows over the links where they are due."""
        links = self._links
        waiting = [
            session
            for session in links.up()
            if now_ms - session.row_sent_ms >= HEARTBEAT_MS
            or (
                now_ms - session.row_sent_ms >= ROW_EVERY_MS
                and len(session.unechoed) < ROWS_UNDER_WAY_MAX
            )
        ]
        if not waiting:
            return
        own = self._own_row()
        due = [
            session
            for session in waiting
            if now_ms - session.row_sent_ms >= HEARTBEAT_MS or self._has_changed(session, own)
        ]
        if due:
            self._version = max(self._version + 1, links.config.wall_ms())
            own = self._own_row()
        for session in due:
            self._send(session, own, now_ms)

    def _has_changed(self, session: PeerSession, own: StatusRow) -> bool:
        """Whether a row has changed that the other side does not get from another region."""
        sent = session.rows_sent.get(own.region)
        if sent is None or not sent.equals_but_version(own):
            return True
        theirs = self._links.rows.rows.get(session.region)
        connected = () if theirs is None else theirs.links
        for region, row in self._links.rows.rows.items():
            if region != session.region and region not in connected:
                sent = session.rows_sent.get(region)
                if sent is None or not sent.equals_but_version(row):
                    return True
        return False

    def _send(self, session: PeerSession, own: StatusRow, now_ms: float) -> None:
        rows = [own]
        for region, row in self._links.rows.rows.items():
            # A region gets its own row once: after a restart its versions must go on above that
            # row.
            if session.rows_sent.get(region) is not row and (
                region != session.region or region not in session.rows_sent
            ):
                rows.append(row)
        session.rows_sent.update((row.region, row) for row in rows)
        session.row_sent_ms = now_ms
        session.unechoed.append(now_ms)
        echo_age_ms = now_ms - session.stamp_at_ms
        self._links.send(
            session,
            StatusRows(rows, now_ms, session.stamp, echo_age_ms, self._links.config.wall_ms()),
        )

    # -- hearing ------------------------------------------------------------------------------

    def receive(self, session: PeerSession, message: StatusRows, now_ms: float) -> None:
        """Take over rows that have arrived."""
        links = self._links
        first = message.rows[0]
        if first.region != session.region or first.replica_id != session.replica_id:
            raise Refusal(Reason.PROTOCOL, "the first row is not that of its sender")
        for row in message.rows:
            known_of_us = max(
                row.have.get(links.replica_id, 0), row.applied.get(links.replica_id, 0)
            )
            links.refuse_beyond_issued(known_of_us, now_ms)
        for row in message.rows:
            self._update_row(row, now_ms)
        self._measure(session, message, now_ms)
        self._compare(session, first)

    def _update_row(self, row: StatusRow, now_ms: float) -> None:
        links = self._links
        if row.region == links.region:
            if row.replica_id == links.replica_id:
                self._version = max(
                    self._version, row.version
                )  # a row of this region from before a restart
        elif links.membership.is_known(row.region):
            links.rows.update(row, now_ms)
            if links.membership.is_member(row.region):
                theirs, ours = (
                    row.applied.get(row.replica_id, 0),
                    links.local.vector.get(row.replica_id, 0),
                )
                links.peer(row.region).receive_lag.reported(row.replica_id, theirs, ours, now_ms)
        for replica_id in {row.replica_id, *row.applied, *row.durable, *row.have}:
            if region_of(replica_id) == links.region and replica_id > links.replica_id:
                links.outlived(epoch_of(replica_id))
                raise Refusal(
                    Reason.EPOCH,
                    f"region {links.region} is in epoch {epoch_of(replica_id)} by now",
                )
            links.membership.learn([replica_id])

    def _measure(self, session: PeerSession, message: StatusRows, now_ms: float) -> None:
        session.stamp = message.stamp
        session.stamp_at_ms = now_ms
        if message.echo < 0:
            return
        while session.unechoed and session.unechoed[0] <= message.echo:
            session.unechoed.popleft()
        links = self._links
        round_trip = max(0.0, now_ms - message.echo - message.echo_age_ms)
        clock = links.peer(session.region).clock
        clock.record(round_trip, message.wall_ms + round_trip / 2 - links.config.wall_ms())
        skew = round(clock.offset_ms or 0)
        if abs(skew) > links.config.max_clock_skew_ms:
            region = session.region
            links.report_once("skew", region, now_ms, **links.named(region), ahead=skew > 0)

    def _compare(self, session: PeerSession, row: StatusRow) -> None:
        """Report when both sides have everything that the other had when the link came up."""
        links = self._links
        if session.met is None:
            session.met = (row.applied, links.local.vector.get(links.replica_id, 0))
            session.began_behind = not covers(links.local.vector, row.applied)
        theirs, ours = session.met
        if (
            not session.in_sync
            and row.applied.get(links.replica_id, 0) >= ours
            and covers(links.local.vector, theirs)
        ):
            session.in_sync = True
            counters = links.peer(session.region).counters
            if session.began_behind and not session.joined:
                counters.partial_catch_ups += 1
                counters.catch_up_cause = "effects written while there was no link"
            links.local.report_event("caught_up", **links.named(session.region))

    # -- what follows -------------------------------------------------------------------------

    def stabilise(self) -> None:
        """Pass a new watermark to the region.

        Not while this region receives a full sync: the full sync is older and may lack effects that
        every member has by now. Tombstones of these effects are needed to join it.
        """
        links = self._links
        if not links.membership.is_member(links.region):
            return  # a region without a cluster knows no member to wait for
        if self._receiver.joiner.incoming is not None:
            return
        watermark = links.rows.watermark(links.local.vector, links.local.durable, links.membership)
        if watermark and watermark != self.watermark:
            self.watermark = watermark
            links.local.watermark_moved(dict(watermark))

    def confirmed(self, replica_id: int | None = None) -> list[tuple[int, int]]:
        """How many effects of this region the others have applied, and have on their disks.

        ``replica_id`` names a former epoch of this region, if that is meant.
        """
        links = self._links
        ours = links.replica_id if replica_id is None else replica_id
        rows = [row for row in map(links.rows.rows.get, links.membership.others()) if row]
        return [(row.applied.get(ours, 0), row.durable.get(ours, 0)) for row in rows]

    def lacking(self) -> list[int]:
        """Regions whose links are up, and that have not confirmed all effects of this region."""
        links = self._links
        number = links.local.vector.get(links.replica_id, 0)
        rows = links.rows.rows
        return [
            session.region
            for session in links.up()
            if (row := rows.get(session.region)) is not None
            and row.applied.get(links.replica_id, 0) < number
        ]

    def feature_levels(self) -> dict[int, int]:
        """The lowest feature level of all members."""
        links = self._links
        levels = {links.region: links.config.feature_level}
        for region in links.membership.others():
            row = links.rows.rows.get(region)
            levels[region] = FEATURE_LEVEL_MIN if row is None else row.feature_level
        return levels
