"""One server with odd names and values, and with very much of one thing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.browser.visitor import Visit, Visitor
from tests.support.inspection import wait_until
from tests.support.page_server import page_server
from tests.support.servers import AnabranchServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HIDE = """
const later = window.setTimeout;
window.setTimeout = (act, ms, ...rest) => later(act, ms === 60000 ? 0 : ms, ...rest);
window.show = (seen) => {
  Object.defineProperty(document, "hidden", {value: !seen, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
};
"""
"""``show`` hides and shows the page; the minute until a hidden page lets go is none."""


class Site:
    """A server with a page."""

    def __init__(self, server: AnabranchServer, port: int) -> None:
        self.server = server
        self.port = port
        self.client = redis.Redis(port=server.port)


@pytest.fixture(scope="module")
def started() -> Iterator[Site]:
    with page_server() as (server, port):
        site = Site(server, port)
        yield site
        site.client.close()


@pytest.fixture
def site(started: Site) -> Site:
    """The same, without data."""
    started.client.flushall()
    return started


def watch(visitor: Visitor, key: str) -> None:
    visitor.until("() => document.getElementById('who').textContent === 'signed in as default'")
    visitor.page.fill("#watch-key", key)
    visitor.page.press("#watch-key", "Enter")
    visitor.until("() => document.getElementById('main').dataset.view === 'stream'")


def rows(table: str, count: int) -> str:
    return f"() => document.querySelectorAll('#{table} tbody tr').length === {count}"


def test_a_line_is_read_as_redis_cli_reads_it(site: Site, visit: Visit) -> None:
    visitor = visit(site.port)
    line = r"""XADD "a\nb" * "\x00\xff" 'it\'s' j '[1.0, 12345678901234567890]' a"b c" \x41"""
    visitor.page.fill("#line", line)
    visitor.page.press("#line", "Enter")
    visitor.until("() => document.querySelector('#log li') !== null")
    fields = site.client.xrange("a\nb")[0][1]
    by_cli = ["redis-cli", "-p", str(site.server.port)]
    subprocess.run(by_cli, input=line.replace("a\\n", "c\\n"), text=True, check=True)
    assert fields == site.client.xrange("c\nb")[0][1]
    assert fields[b"\x00\xff"] == b"it's"
    # What can be copied from the page does the same in a shell.
    visitor.page.evaluate("() => navigator.clipboard.writeText = async (text) => copied = text")
    visitor.page.locator("#log li button").first.click()
    subprocess.run(["bash", "-c", visitor.page.evaluate("() => copied")], check=True)
    assert [each for _, each in site.client.xrange("a\nb")] == [fields, fields]
    visitor.page.fill("#line", 'XADD s * a "b')
    visitor.page.press("#line", "Enter")
    assert visitor.page.locator("#line:invalid").count() == 1, "the quote is not closed"
    # Values are shown as they are, and a name that cannot be typed is confirmed as it is shown.
    site.client.xgroup_create("a\nb", "g", "0")
    site.client.xreadgroup("g", "c", {"a\nb": ">"})
    visitor.go("#/streams")
    visitor.page.locator("#streams a", has_text="a").first.click()
    visitor.until("() => document.getElementById('entries').textContent.includes('[1.0, 1234')")
    assert "[1.0, 12345678901234567890]" in visitor.page.inner_text("#entries")
    visitor.page.locator("#groups a").click()
    visitor.page.locator("#pending button", has_text="Ack").first.click()
    assert r"Type a\x0ab to confirm" in visitor.page.inner_text("#sure-label")
    visitor.page.fill("#sure-name", r"a\x0ab")
    visitor.page.click("#sure-ok")
    wait_until(lambda: site.client.xpending("a\nb", "g")["pending"] == 1, "it is acknowledged")
    assert visitor.complaints == []


def test_names_of_bytes_are_buried_under_their_own_name(site: Site, visit: Visit) -> None:
    site.client.xadd(b"k\xff", {"f": "v"})
    site.client.xgroup_create(b"k\xff", b"g\xff", "0")
    site.client.xreadgroup(b"g\xff", "one", {b"k\xff": ">"})
    visitor = visit(site.port)
    # The list may still be of a survey of a moment ago, and name streams of the test before.
    visitor.go("#/streams")
    visitor.page.locator("#streams a", has_text="0x6bff").first.click()
    visitor.page.locator("#groups a").click()
    visitor.until(rows("pending", 1))
    (entry,) = site.client.xrange(b"k\xff")
    site.client.xclaim(b"k\xff", b"g\xff", "two", 0, [entry[0]])  # the page has an older owner
    visitor.page.locator("#pending button", has_text="Bury").click()
    visitor.page.fill("#sure-name", "0x6bff")
    visitor.page.click("#sure-ok")
    wait_until(lambda: site.client.exists(b"k\xff.dead"), "it is buried")
    ((_, buried),) = site.client.xrange(b"k\xff.dead")
    assert (buried[b"origin-key"], buried[b"origin-consumer"]) == (b"k\xff", b"two")
    assert buried[b"origin-deliveries"] == b"2"


def test_tables_have_an_end(site: Site, visit: Visit) -> None:
    pipe = site.client.pipeline(transaction=False)
    for number in range(120):
        pipe.xadd("s", {"json": "v" * 60_000})
        pipe.xgroup_create("s", f"g{number}", "0")
    for number in range(130):
        pipe.xreadgroup("g7", f"c{number}", {"s": ">"}, count=1)
    pipe.execute()
    visitor = visit(site.port)
    watch(visitor, "s")
    visitor.until(rows("groups", 101))
    assert "and 20 with fewer pending" in visitor.page.inner_text("#groups")
    visitor.page.click("#range button")
    visitor.until(
        "() => /^\\d+ of 120 entries/.test(document.getElementById('walk-say').textContent)"
    )
    assert visitor.page.locator("#entries tbody tr").count() < 30, "fewer of large entries"
    visitor.page.locator("#groups a").first.click()
    visitor.until(rows("consumers", 101))
    assert visitor.page.inner_text("#h-group") == "Group g7 of stream s", "the fullest is the first"
    assert "50 of 120" in visitor.page.inner_text("#pending-say")
    assert visitor.complaints == []


def test_a_very_long_name_is_named_and_not_opened(site: Site, visit: Visit) -> None:
    site.client.xadd("n" * 1_000_000, {"f": "v"})
    site.client.xadd("short", {"f": "v"})
    visitor = visit(site.port)
    visitor.go("#/streams")
    visitor.until(rows("streams", 2))
    text = visitor.page.inner_text("#streams")
    assert "n" * 100 + "… (976.6 KiB)" in text
    assert visitor.page.inner_text("#streams a") == "short"
    assert visitor.complaints == []


def requests_of(visitor: Visitor, path: str) -> list[Any]:
    seen: list[Any] = []
    visitor.page.on(
        "request", lambda request: seen.append(request) if path in request.url else None
    )
    return seen


def test_a_hidden_page_gives_its_connection_back(site: Site, visit: Visit) -> None:
    visitor = visit(site.port, script=HIDE)
    serving = "() => /serving/.test(document.getElementById('health').textContent)"
    visitor.until(serving)
    visitor.page.evaluate("() => show(false)")
    visitor.until("() => /hidden/.test(document.getElementById('health').textContent)")

    def feeds() -> int:
        return sum(each["name"] == "web" for each in site.client.client_list())

    site.client.xadd("s", {"f": "v"})
    wait_until(lambda: not feeds(), "the feed has ended")
    visitor.page.evaluate("() => show(true)")
    visitor.until(serving)


def sign_in_as_ann(visitor: Visitor, password: str) -> None:
    visitor.page.click("#sign")
    visitor.page.fill("#user", "ann")
    visitor.page.fill("#password", password)
    visitor.page.click("#login button[value=ok]")


@pytest.mark.parametrize(
    ("token", "why"), [("%", "is not the one"), ("%E2%82%AC", "cannot be sent")]
)
def test_a_token_in_the_address_that_is_none(
    site: Site, visit: Visit, token: str, why: str
) -> None:
    site.client.acl_setuser(
        "ann", enabled=True, passwords=["+pw"], keys=["*"], categories=["+@all"]
    )
    visitor = visit(site.port, token=token)
    visitor.until("() => document.getElementById('who').textContent === 'not signed in'")
    assert why in visitor.page.inner_text("#health")
    sign_in_as_ann(visitor, "pw")
    visitor.until("() => document.getElementById('who').textContent === 'signed in as ann'")
    site.client.acl_deluser("ann")


def test_a_wrong_password_is_tried_once(site: Site, visit: Visit) -> None:
    site.client.acl_setuser(
        "ann", enabled=True, passwords=["+pw"], keys=["*"], categories=["+@all"]
    )
    visitor = visit(site.port, token="")
    visitor.until("() => document.getElementById('who').textContent === 'read only'")
    tried = requests_of(visitor, "/events")
    sign_in_as_ann(visitor, "wrong")
    visitor.until("() => document.getElementById('who').textContent === 'not signed in'")
    visitor.page.wait_for_timeout(2500)  # a page that tries again does it each second
    assert len(tried) == 1
    sign_in_as_ann(visitor, "pw")
    visitor.until("() => document.getElementById('who').textContent === 'signed in as ann'")
    site.client.acl_deluser("ann")
