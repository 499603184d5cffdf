"""Views and their addresses, walks through a long stream, and questions before deletions."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import redis

from tests.browser.visitor import Visit, Visitor, World
from tests.support.inspection import wait_until
from tests.support.page_server import page_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LONG = 20_000
TEXT = "() => document.getElementById('{0}').textContent"
DOCUMENT = json.dumps({"order": {"items": [1, 2, 12345678901234567890]}, "note": "fragile " * 4})


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[redis.Redis, int]]:
    """A stream of many entries, of which one has the field that is searched for."""
    with (
        page_server() as (server, port),
        redis.Redis(port=server.port, decode_responses=True) as client,
    ):
        pipe = client.pipeline(transaction=False)
        for number in range(LONG):
            pipe.xadd("long", {"n": number, "sensor": f"t{number}"}, id=f"{number + 1}-1")
        for name in ("alarms", "archive"):
            pipe.xgroup_create("long", name, "0")
        pipe.execute()
        client.xreadgroup("alarms", "one", {"long": ">"}, count=3)
        yield client, port


def opened(visit: Visit, port: int, address: str) -> Visitor:
    visitor = visit(port)
    visitor.until("() => document.getElementById('who').textContent === 'signed in as default'")
    visitor.go(address)
    return visitor


def says(visitor: Visitor, text: str) -> None:
    visitor.until(f"{TEXT.format('walk-say')}.includes({json.dumps(text)})")


def ids(visitor: Visitor) -> list[str]:
    found: list[str] = visitor.page.locator("#entries tbody td:first-child").all_inner_texts()
    return found


def test_a_search_looks_at_the_whole_stream(site: tuple[redis.Redis, int], visit: Visit) -> None:
    _, port = site
    visitor = opened(visit, port, "#/stream/0/long")
    page = visitor.page
    page.fill("#field", "sensor")
    page.fill("#value", "t7")
    page.press("#value", "Enter")
    says(visitor, f"whose value of sensor is equal to “t7”; looked at all {LONG:,} entries")
    assert ids(visitor) == ["8-1"]
    page.select_option("#match", "part")
    page.press("#value", "Enter")
    says(visitor, "contains “t7”; looked at")
    assert len(ids(visitor)) == 100
    assert ids(visitor)[0] == "8000-1", "the newest first"
    page.fill("#value", "nowhere")
    page.press("#value", "Enter")
    says(visitor, f"No entry whose value of sensor contains “nowhere”; looked at all {LONG:,}")
    # A view of one entry of many was an empty table before: now it goes on from either side.
    page.fill("#value", "")
    page.fill("#field", "")
    page.fill("#from", str(LONG + 5))
    page.press("#from", "Enter")
    says(visitor, f"no newer entries; it has {LONG:,} entries")
    page.click("#older")
    says(visitor, f"100 of {LONG:,} entries")
    assert ids(visitor)[0] == f"{LONG}-1"
    assert visitor.complaints == []


def test_a_stream_is_walked_from_end_to_end(site: tuple[redis.Redis, int], visit: Visit) -> None:
    _, port = site
    visitor = opened(visit, port, "#/stream/0/long")
    visitor.page.fill("#from", f"{LONG - 250}")
    visitor.page.press("#from", "Enter")
    newest = f"{LONG - 151}-1"  # of the hundred entries from that one on
    visitor.until(f"() => document.querySelector('#entries td').textContent === '{newest}'")
    seen = ids(visitor)
    for _ in range(2):
        last = ids(visitor)[0]
        visitor.page.click("#newer")
        visitor.until(f"() => document.querySelector('#entries td').textContent !== '{last}'")
        seen = ids(visitor) + seen
    assert seen == [f"{number}-1" for number in range(LONG, LONG - 251, -1)]
    assert visitor.page.locator("#newer").is_disabled()
    visitor.page.click("#oldest")
    visitor.until("() => /^100-1/.test(document.querySelector('#entries td').textContent)")
    assert visitor.page.locator("#older").is_disabled()


def test_views_have_addresses(site: tuple[redis.Redis, int], visit: Visit) -> None:
    client, port = site
    client.xadd("a/b~ü #?", {"f": DOCUMENT})
    client.xgroup_create("a/b~ü #?", "~g/1", "0")
    client.xreadgroup("~g/1", "c", {"a/b~ü #?": ">"})
    visitor = opened(visit, port, "#/")
    page = visitor.page
    page.set_viewport_size({"width": 1400, "height": 900})
    page.locator("#heat tbody a", has_text="~g/1").click()
    visitor.until("() => document.querySelectorAll('#pending tbody button').length > 0")
    assert page.inner_text("#h-group") == "Group ~g/1 of stream a/b~ü #?"
    assert " · 1 consumer · " in page.inner_text("#group-say")
    assert visitor.focused().startswith("H2 h-group")
    assert (
        page.evaluate("() => document.getElementById('h-group').getBoundingClientRect().top") < 200
    )
    group_url = page.url
    page.go_back()
    visitor.until("() => document.getElementById('main').dataset.view === 'overview'")
    # The address is enough: somebody else opens the same group in a browser of their own.
    other = opened(visit, port, group_url.partition("#")[2].join(("#", "")))
    other.until("() => document.querySelectorAll('#pending tbody button').length > 0")
    assert "~g/1" in other.page.title()
    other.page.locator("#group-say a").click()
    other.page.set_viewport_size({"width": 1400, "height": 900})
    other.until("() => document.querySelectorAll('#entries tbody .json').length === 1")
    formatted = other.page.inner_text("#entries .json")
    assert json.loads(formatted) == json.loads(DOCUMENT)
    assert formatted.splitlines()[1:3] == ['  "order": {', '    "items": [']
    entries = "() => document.querySelector('#entries tbody').getBoundingClientRect()"
    assert other.page.evaluate(f"{entries}.top") < 400, "entries are above the fold"
    other.page.set_viewport_size({"width": 390, "height": 800})
    hint = (
        "() => getComputedStyle(document.querySelector('#groups').parentNode, '::before').content"
    )
    other.until(f"{hint}.includes('scroll sideways')")
    assert visitor.complaints == other.complaints == []


def test_what_deletes_is_asked_first(world: World, visit: Visit) -> None:
    world.fill(3)
    visitor = opened(visit, world.port, "#/")
    page = visitor.page
    for line, name in (
        ("XTRIM readings MAXLEN 1", "readings"),
        ("XGROUP DESTROY readings alarms", "readings"),
        ("XADD readings MAXLEN 0 * f v", "readings"),
        ("DEL readings orders", "DEL"),
        ("flushall", "FLUSHALL"),
    ):
        page.fill("#line", line)
        page.press("#line", "Enter")
        visitor.until("() => document.getElementById('sure').open")
        assert "in all regions" in page.inner_text("#sure-what"), line
        assert page.locator("#sure-ok").is_disabled()
        page.fill("#sure-name", name)
        assert page.locator("#sure-ok").is_enabled(), line
        page.keyboard.press("Escape")
        visitor.until("() => !document.getElementById('sure').open")
    assert world.eu.xlen("readings") == 9, "nothing ran"
    page.press("#line", "Enter")
    page.fill("#sure-name", "FLUSHALL")
    page.click("#sure-ok")
    wait_until(lambda: not world.us.dbsize(), "it ran, in all regions")


def test_converged_lasts_under_traffic_and_the_figures_agree(world: World, visit: Visit) -> None:
    world.fill(2)
    visitor = visit(world.port)
    visitor.until("() => refreshes.length && refreshes.at(-1).converged")
    shown = """() => ({
      since: document.getElementById("converged").textContent.split(",")[0],
      refreshes: refreshes.length,
      rows: [...document.querySelectorAll("#links tbody tr")].map((row) => {
        const cells = ["eu", "us", "ap"].map((of) =>
          document.querySelector(`[data-cell="${row.dataset.region}/${of}"]`).textContent);
        const here = document.querySelector(`[data-cell="eu/${row.dataset.region}"]`).textContent;
        return [row.cells[3].textContent, cells, row.cells[4].textContent, here];
      }),
    })"""
    first = visitor.page.evaluate(shown)
    seen = first
    while seen["refreshes"] < first["refreshes"] + 8:
        for client in world.clients:
            client.xadd("readings", {"sensor": "x"})
        seen = visitor.page.evaluate(shown)
        assert seen["since"] == first["since"]
        for lacks, cells, here, of_it in seen["rows"]:
            assert lacks.rstrip("+") == str(sum(int(each.rstrip("+")) for each in cells))
            assert here == of_it
