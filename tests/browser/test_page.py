"""The page in a real browser, on three real processes: isolate, diverge, heal, converge.

Needs Debian's chromium (``apt-get install chromium``) and playwright. With
``ANABRANCH_SCREENSHOTS=docs/pictures`` the screenshots of the documents are made anew.
"""

from __future__ import annotations

import sys
import time

import pytest

from tests.browser.visitor import Visit, World
from tests.support.inspection import wait_until
from tests.support.terminal import Terminal

pytest.importorskip("starlette", reason="the extra web is not installed: NO PAGE IS TRIED")

from anabranch.web.feed import BEAT_S, BEATS_PER_STATUS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

REFRESHES_MAX = 2
"""The page must show a change within two seconds. It is refreshed once a second, so we count.

The clock would say more about the machine than about the page. A page whose feed hangs does not
pass: after four seconds of silence it says so, and no refresh may come while it does.
"""

FILLED = {
    "#/": "#busy tbody a",
    "#/streams": "#streams tbody a",
    "#/stream/0/readings": "#groups tbody a",
    "#/stream/0/readings/group/alarms": "#pending tbody button",
}
"""Something in each view that is there once the view is filled."""


def test_a_region_is_cut_off_and_comes_back(world: World, visit: Visit) -> None:
    world.fill(40)
    visitor = visit(world.port)
    page = visitor.page

    def shows(shown: str, change: str) -> None:
        """The page shows what has just become true of the regions."""
        number, late_ms = visitor.refreshes_until(shown, time.time() * 1000)
        print(f"{change}: refresh {number}, {late_ms:.0f} ms")  # noqa: T201 - for pytest -rP
        assert number <= REFRESHES_MAX, f"{change}: refresh {number}, after {late_ms:.0f} ms"

    visitor.until("() => refreshes.length && refreshes.at(-1).converged")
    visitor.until("() => document.querySelectorAll('#busy tbody a').length >= 2")
    page.wait_for_timeout(2500)  # the charts have some points
    visitor.picture("page-light")

    visitor.press("isolate")
    wait_until(lambda: world.links_are("cut"), "both links are cut")
    shows("cut", "isolated")
    for number in range(12):
        world.eu.xadd("readings", {"sensor": "oslo", "celsius": number})
        world.us.xadd("readings", {"sensor": "denver", "celsius": number})
    shows("apart", "divergence")
    shows("us_lacks >= 12", "how far they are apart")
    visitor.picture("page-cut")
    words = [sys.executable, "-m", "anabranch", "top", "-p", str(world.servers[0].port)]
    with Terminal([*words, "--interval", "0.3"], COLUMNS="90", LINES="12") as terminal:
        terminal.expect(r"us +cut [^$]+ap +cut [^$]+readings", seconds=60)
        terminal.expect(r"us +cut [^$]+ap +cut [^$]+orders", seconds=60)  # drawn as a whole
        visitor.picture_of_terminal("top", terminal.screen, 90)

    visitor.press("heal")
    wait_until(lambda: world.links_are("in_sync"), "both links are in sync")
    shows("in_sync", "healed")
    wait_until(world.is_whole, "all regions have the same")
    shows("converged", "convergence")
    visitor.until("() => /came late/.test(document.getElementById('timeline-say').textContent)")
    assert world.eu.xlen("readings") == world.us.xlen("readings") == world.ap.xlen("readings")
    visitor.picture("page-healed")
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    page.click("#theme")
    page.click("#theme")
    page.wait_for_timeout(1200)
    visitor.picture("page-dark")
    assert BEAT_S * BEATS_PER_STATUS == 1.0
    assert not page.evaluate("() => refreshes.some((refresh) => refresh.off)")
    assert visitor.complaints == []


def test_conflicts_that_were_resolved(world: World, visit: Visit) -> None:
    world.fill(1)
    clients = (world.eu, world.us)
    for name in ("us", "ap"):
        world.eu.execute_command("AB.LINK", name, "PAUSE")
    for client, of in zip(clients, ("eu", "us"), strict=True):
        client.set("text", "of " + of)
        client.incr("text:count")
    world.eu.sadd("met", "member")
    world.us.set("met", "string")
    for name in ("us", "ap"):
        world.eu.execute_command("AB.LINK", name, "RESUME")
    wait_until(world.is_whole, "all regions have the same")
    visitor = visit(world.port)
    page = visitor.page
    rows = "[...document.querySelectorAll('#conflicts tbody tr')].map((row) => row.innerText)"

    def looks(key: str, *due: str) -> None:
        page.fill("#look-key", key)
        page.press("#look-key", "Enter")
        visitor.until(f"() => {{ const rows = {rows}.join(); return {list(due)}.every((each) => "
                      "rows.includes(each)); }")  # fmt: skip

    visitor.until(
        "() => /another type: 1/.test(document.getElementById('conflicts-say').innerText)"
    )
    looks("", "hides a value", "met")
    page.click("#conflicts tbody button")
    visitor.until(f"() => {rows}.join().includes('a set that is hidden')")
    looks("text:count", "added", "eu", "us")
    looks("nothing", "There is no such key.")
    looks("text", "of us", "of eu", "written: this counts", "written at once, and hidden")
    visitor.picture("page-conflicts")
    assert visitor.complaints == []


def test_a_press_that_outlasts_refreshes_acts(world: World, visit: Visit) -> None:
    """What is pressed must not be replaced meanwhile, although the row changes every second."""
    world.fill(1)
    visitor = visit(world.port)
    visitor.until("() => document.querySelectorAll('#links tbody tr').length === 2")
    visitor.page.hover('#links tr[data-region="ap"] button[data-k^="Cut"]')
    visitor.page.mouse.down()
    before = visitor.page.evaluate("() => refreshes.length")
    visitor.until(f"() => refreshes.length >= {before + 2}")
    visitor.page.mouse.up()
    visitor.until("() => refreshes.length && document.querySelector("
                  "'#links tr[data-region=\"ap\"]').dataset.state === 'cut'")  # fmt: skip
    assert {row["name"]: row["state"] for row in world.eu.execute_command("AB.PEERS")} == {
        "us": "in_sync",
        "ap": "cut",
    }


def test_streams_groups_and_acts_by_keyboard(world: World, visit: Visit) -> None:
    world.fill(10)
    visitor = visit(world.port)
    page, keyboard = visitor.page, visitor.page.keyboard
    visitor.until("() => document.querySelectorAll('#busy tbody a').length >= 2")

    visitor.tab_to("INPUT watch-key")
    keyboard.insert_text("readings")
    keyboard.press("Enter")
    visitor.tab_to("A galarms")
    keyboard.press("Enter")
    visitor.until("() => document.querySelectorAll('#pending tbody tr').length === 12")
    visitor.tab_to("BUTTON Ack")
    keyboard.press("Enter")
    visitor.tab_to("INPUT sure-name")
    assert page.locator("#sure-ok").is_disabled(), "the name must be typed"
    keyboard.insert_text("readings")
    visitor.press("sure-ok")
    visitor.until("() => document.querySelectorAll('#pending tbody tr').length === 11")
    assert world.eu.xpending("readings", "alarms")["pending"] == 11
    visitor.tab_to("BUTTON Release")
    keyboard.press("Enter")
    visitor.until("() => document.getElementById('pending').textContent.includes('released')")
    visitor.tab_to("BUTTON Bury")
    keyboard.press("Enter")
    visitor.tab_to("INPUT sure-name")
    keyboard.insert_text("readings")
    visitor.press("sure-ok")
    visitor.until("() => document.querySelectorAll('#pending tbody tr').length === 10")
    ((_, buried),) = world.eu.xrange("readings.dead")
    assert (buried["origin-key"], buried["origin-deliveries"]) == ("readings", "1")
    assert world.eu.xrange("readings", buried["origin-id"])[0][1]["sensor"] == buried["sensor"]
    page.go_back()
    visitor.tab_to("INPUT pairs")
    keyboard.insert_text('sensor "by hand"')
    keyboard.press("Enter")
    visitor.until("() => document.getElementById('entries').textContent.includes('by hand')")
    assert world.eu.xrevrange("readings", count=1)[0][1] == {"sensor": "by hand"}
    noted = 'XADD readings * sensor "by hand"'
    visitor.until(f"() => document.querySelector('#log code').textContent === '{noted}'")
    visitor.tab_to("INPUT line")
    keyboard.insert_text("XLEN readings")
    keyboard.press("Enter")
    visitor.until("() => document.querySelector('#log pre').textContent === '31'")
    visitor.tab_to("A #/ ")
    keyboard.press("Enter")
    visitor.tab_to("BUTTON Slow2")
    keyboard.press("Enter")
    visitor.until("() => document.getElementById('links').textContent.includes('slowed')")

    actions = 0
    for address, filled in FILLED.items():
        visitor.go(address)
        visitor.until(f"() => document.querySelectorAll('{filled}').length > 0")
        page.emulate_media(color_scheme="light")
        assert visitor.serious() == [], address
        page.emulate_media(color_scheme="dark")
        assert visitor.serious("color-contrast") == [], "only colours differ"
        before = visitor.actions()
        reached = visitor.reached_by_keyboard()
        lasting = before & visitor.actions()  # rows of tables come and go
        assert lasting <= reached, f"not by the keyboard: {sorted(lasting - reached)}"
        actions += len(lasting)
    assert actions > 80
    visitor.go("#/")
    assert (
        page.evaluate(
            '() => document.querySelectorAll(\'[tabindex]:not([tabindex="0"]):not('
            '[tabindex="-1"])\').length'
        )
        == 0
    ), "the order is that of the page"
    page.set_viewport_size({"width": 360, "height": 740})
    page.wait_for_timeout(600)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    visitor.picture("page-narrow")
    assert visitor.complaints == []
