"""Leases, dead letters and retention on the page: who holds what, and a redrive that asks first."""

from __future__ import annotations

import pytest
import redis

from tests.browser.test_views import opened
from tests.browser.visitor import Visit, Visitor
from tests.support.inspection import wait_until
from tests.support.page_server import page_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

POLICY = ("lease", "connection:1h", "max-deliveries", "1", "dead-letter", "jobs:dead")


def rows(visitor: Visitor, table: str) -> list[str]:
    """The rows of a table without what can be done with them."""
    found = visitor.page.locator(f"#{table} tbody tr").all_inner_texts()
    return [" ".join(row.split()) for row in found]


def until_said(visitor: Visitor, place: str, text: str) -> None:
    visitor.until(f"() => document.getElementById('{place}').textContent.includes('{text}')")


def test_a_group_shows_its_leases_and_gives_dead_letters_back(visit: Visit) -> None:
    with (
        page_server() as (server, port),
        redis.Redis(port=server.port, decode_responses=True) as client,
        redis.Redis(port=server.port, single_connection_client=True) as ann,
        redis.Redis(port=server.port, single_connection_client=True) as bob,
    ):
        client.xgroup_create("jobs", "g", mkstream=True)
        client.execute_command("AB.POLICY", "SET", "jobs", "GROUP", "g", *POLICY)
        client.execute_command("AB.POLICY", "SET", "jobs", "max-length", "1", "keep", "unacked")
        ids = [client.xadd("jobs", {"task": task}) for task in ("broken", "long", "lost")]
        broken, long, lost = ids
        client.xreadgroup("g", "eve", {"jobs": ">"}, count=1)
        client.xnack("jobs", "g", "FAIL", broken)
        ann.xreadgroup("g", "ann", {"jobs": ">"}, count=1)
        bob.xreadgroup("g", "bob", {"jobs": ">"}, count=1)
        bob.close()
        visitor = opened(visit, port, "#/stream/0/jobs/group/g")
        page = visitor.page
        visitor.until("() => document.querySelectorAll('#dead tbody button').length === 1")
        page.set_viewport_size({"width": 1400, "height": 900})
        visitor.until("() => document.querySelector('#consumers').textContent.includes('ends in')")
        leases = {row.split()[0]: row for row in rows(visitor, "consumers")}
        assert leases["ann"].endswith("held by 1 connection")
        assert leases["bob"].endswith("ends in 60 min")
        assert "held" not in leases["eve"], "what eve had is a dead letter"
        assert rows(visitor, "dead") == [f"{broken} nack 1 eve Redrive"]
        assert "1 of this group among the newest 1" in page.inner_text("#dead-say")
        assert "lease connection:1h" in page.inner_text("#group-say")
        visitor.picture("group-policies")
        page.click("#dead tbody button")
        visitor.until("() => document.getElementById('sure').open")
        assert "AB.REDRIVE jobs:dead IDS 1" in page.inner_text("#sure-command")
        page.fill("#sure-name", "jobs")
        page.click("#sure-ok")
        wait_until(lambda: not client.xlen("jobs:dead"), "the dead letter is given back")
        until_said(visitor, "dead-say", "none of this group")
        assert page.locator("#redrive").is_disabled()
        # With the policy an entry is buried where AB.REDRIVE finds it, and all can be given back.
        page.click(f"[aria-label^='Bury {long}']")
        page.fill("#sure-name", "jobs")
        page.click("#sure-ok")
        until_said(visitor, "dead", "fatal")
        page.click("#redrive")
        page.fill("#sure-name", "jobs:dead")
        page.click("#sure-ok")
        until_said(visitor, "dead-say", "none of this group")
        pending = {
            row["message_id"]: row["consumer"]
            for row in client.xpending_range("jobs", "g", "-", "+", 9)
        }
        assert pending == {broken: "", long: "", lost: "bob"}
        page.click("#group-say a")
        until_said(visitor, "retention-say", "group g needs what is there from")
        chips = page.locator("#retention .chip").all_inner_texts()
        assert chips == ["max-length 1", "keep unacked"]
        visitor.picture("stream-retention")
        assert visitor.complaints == []
