"""The simulated phone: what is on the screen and what input does."""

import itertools
import random

import pytest
from PIL import Image

from actors.phone.apps.browser import address, title
from actors.phone.phone import MAX_TYPED, Phone
from tests.actors.phone.simulation import Simulation


@pytest.fixture
def simulation() -> Simulation:
    return Simulation(seed=1)


def icons(seed: int) -> list[str]:
    return [n.text for n in Phone(seed).nodes() if n.resource_id.endswith("/icon")]


def text_of(simulation: Simulation, name: str) -> str:
    return next(n.text for n in simulation.phone.nodes() if n.resource_id.endswith(f"/{name}"))


def url(simulation: Simulation) -> str:
    rows = simulation.phone.content("content://com.android.chrome/tabs")
    return next(row["url"] for row in rows if row["active"] == "1")


def test_a_seed_gives_the_same_phone_every_time():
    used = Simulation(seed=5)
    rng = random.Random(0)
    for _ in range(200):
        used.disturb(rng)
    used.phone.install("com.example")
    used.phone.reset(5)
    fresh = Phone(5)
    assert used.phone.nodes() == fresh.nodes()
    assert used.phone.settings == fresh.settings
    assert used.phone.packages == fresh.packages
    assert used.phone.render().tobytes() == fresh.render().tobytes()


def test_layouts_and_settings_differ_between_seeds():
    assert len({tuple(icons(seed)) for seed in range(5)}) == 5
    assert len({str(Phone(seed).settings) for seed in range(5)}) == 5
    assert len({Phone(seed).render().getpixel((2, 40)) for seed in range(20)}) > 2


def test_icons_stay_apart_on_a_thumbnail(simulation):
    small = simulation.phone.render().resize((54, 96), Image.Resampling.BOX)
    colors = []
    for node in simulation.phone.nodes():
        if node.resource_id.endswith("/icon"):
            x0, y0, _, _ = node.bounds
            colors.append(small.getpixel(((x0 + 18) * 54 // 360, (y0 + 12) * 96 // 640)))
    wallpaper = small.getpixel((0, 10))
    assert len(colors) == 12
    for one, other in itertools.combinations([*colors, wallpaper], 2):
        assert sum(abs(a - b) for a, b in zip(one, other, strict=True)) > 60


@pytest.mark.parametrize("size", [(360, 640), (1080, 2280)])
def test_nothing_that_a_user_does_breaks_it(size):
    simulation = Simulation(7, *size)
    rng = random.Random(1)
    phone = simulation.phone
    seen: dict[int, bytes] = {}
    for step in range(4_000):
        simulation.disturb(rng)
        nodes = phone.nodes()
        assert nodes[0].bounds == (0, 0, *size)
        assert sum(node.focused for node in nodes) == (phone.focus is not None)
        assert all(row is not None for uri in URIS for row in phone.content(uri))
        if step % (20 if size[0] < 400 else 500) == 0:
            image = phone.render()
            assert image.size == size
            assert seen.setdefault(phone.revision, image.tobytes()) == image.tobytes()
    assert len(seen) > 5


def test_the_smallest_screen_shows_all_that_a_user_does():
    simulation = Simulation(7, 120, 214)
    rng = random.Random(1)
    for _ in range(500):
        simulation.disturb(rng)
        assert simulation.phone.render().size == (120, 214)


URIS = (
    "content://com.android.deskclock/alarms",
    "content://com.android.deskclock/timers",
    "content://call_log/calls",
    "content://com.android.contacts/contacts",
    "content://com.android.chrome/tabs",
    "content://com.android.chrome/cart",
)


def test_the_revision_moves_exactly_when_the_screen_does(simulation):
    rng = random.Random(2)
    before = simulation.phone.render().tobytes()
    for _ in range(150):
        revision = simulation.phone.revision
        simulation.disturb(rng)
        after = simulation.phone.render().tobytes()
        # Not the converse: what is typed may lie outside of a field's visible part.
        assert after == before or simulation.phone.revision > revision
        before = after
    revision = simulation.phone.revision
    simulation.phone.refresh()
    assert simulation.phone.revision == revision


def test_back_closes_the_keyboard_then_the_page_then_the_app(simulation):
    simulation.open("Chrome")
    simulation.enter("url_bar", "ebay.com")
    simulation.tap("site_search")
    assert simulation.phone.focus == "site_search"
    simulation.phone.key("BACK")
    assert simulation.phone.focus is None
    assert url(simulation) == "https://www.ebay.com/"
    simulation.phone.key("BACK")
    assert url(simulation) == "chrome://newtab/"
    simulation.phone.key("BACK")
    assert simulation.phone.foreground == "com.android.launcher3/.Launcher"
    simulation.phone.key("BACK")
    assert simulation.phone.foreground == "com.android.launcher3/.Launcher"


def test_an_app_goes_on_where_it_was_left(simulation):
    simulation.open("Clock")
    simulation.tap("timers")
    simulation.open("Clock")
    assert any(n.resource_id.endswith("/start") for n in simulation.phone.nodes())


def test_text_is_appended_and_replaces_what_was_there_before_the_tap(simulation):
    simulation.open("Play Store")
    simulation.enter("search", "twitter")
    assert text_of(simulation, "search") == "twitter"
    simulation.tap("search")
    assert simulation.phone.type_text("net")
    assert simulation.phone.type_text("flix")
    assert text_of(simulation, "search") == "netflix"
    simulation.phone.key("DEL")
    assert text_of(simulation, "search") == "netfli"
    simulation.phone.key("BACK")
    assert text_of(simulation, "search") == "twitter"


def test_text_is_printable_and_short(simulation):
    assert not simulation.phone.type_text("no field has the focus")
    simulation.open("Chrome")
    simulation.tap("url_bar")
    simulation.phone.type_text("a\x00\n\x1bb\u00e9\U0001f600c")
    assert simulation.phone.typed == "abc"
    simulation.phone.type_text("x" * 1000)
    assert len(simulation.phone.typed) == MAX_TYPED


def test_enter_on_an_empty_field_does_nothing(simulation):
    simulation.open("Chrome")
    simulation.tap("url_bar")
    simulation.phone.type_text("   ")
    simulation.phone.key("ENTER")
    assert simulation.phone.focus == "url_bar"
    assert url(simulation) == "chrome://newtab/"


def test_the_keyboard_takes_taps(simulation):
    simulation.open("Contacts")
    simulation.open("Chrome")
    simulation.tap("url_bar")
    revision = simulation.phone.revision
    simulation.phone.tap(180, 600)
    assert (simulation.phone.focus, simulation.phone.revision) == ("url_bar", revision)
    simulation.phone.tap(180, 300)
    assert simulation.phone.focus is None


def test_a_short_swipe_is_a_tap_and_a_long_one_scrolls(simulation):
    simulation.open("Settings")
    first = simulation.phone.nodes()
    simulation.phone.swipe(180, 500, 180, 200)
    assert text_of(simulation, "switch") == "Location"
    simulation.phone.swipe(180, 200, 180, 500)
    assert simulation.phone.nodes() == first
    wifi = simulation.phone.settings["global"]["wifi_on"]
    simulation.phone.swipe(180, 100, 190, 105)
    assert simulation.phone.settings["global"]["wifi_on"] != wifi


def test_a_switch_and_its_setting_are_one(simulation):
    def checked() -> bool:
        return next(n.checked for n in simulation.phone.nodes() if n.text == "Location")

    simulation.open("Settings")
    simulation.shell("settings put secure location_mode 0")
    assert not checked()
    simulation.tap("switch", "Location")
    assert checked()
    assert simulation.shell("settings get secure location_mode") == "3\n"


def test_alarms_timers_and_calls_can_be_read(simulation):
    simulation.open("Clock")
    simulation.tap("add")
    simulation.tap("chip", "1pm")
    simulation.tap("save")
    simulation.tap("timers")
    simulation.tap("chip", "10")
    simulation.tap("start")
    simulation.open("Contacts")
    simulation.tap("person", "Emma")
    simulation.tap("call")
    alarms, timers, calls, *_ = (simulation.phone.content(uri) for uri in URIS)
    assert alarms == [{"_id": "1", "hour": "13", "minutes": "0", "enabled": "1"}]
    assert timers == [{"_id": "1", "length": "600000", "state": "running"}]
    assert [call["name"] for call in calls] == ["Emma"]
    assert simulation.phone.content_delete(URIS[0], {"hour": "13"}) == 1
    assert simulation.phone.content(URIS[0]) == []
    assert simulation.phone.content_delete(URIS[3], {}) == 0
    assert simulation.phone.content("content://nobody/knows") is None


def test_addresses_say_what_is_shown(simulation):
    simulation.open("Chrome")
    simulation.enter("url_bar", "weather in Paris")
    assert url(simulation) == "https://www.google.com/search?q=weather+in+paris"
    simulation.tap("result_2")
    assert url(simulation) == "https://www.result2.com/about?q=weather+in+paris"
    simulation.enter("url_bar", "www.BestBuy.com")
    assert url(simulation) == "https://www.bestbuy.com/"
    simulation.enter("site_search", "dell xps")
    assert url(simulation) == "https://www.bestbuy.com/search?q=dell+xps"
    simulation.tap("entry_1")
    assert url(simulation) == "https://www.bestbuy.com/product/1?q=dell+xps"
    simulation.tap("add_to_cart")
    simulation.tap("cart")
    assert url(simulation) == "https://www.bestbuy.com/cart"
    assert simulation.phone.content(URIS[5]) == [{"site": "bestbuy.com", "item": "dell xps"}]
    simulation.tap("new_incognito_tab")
    tabs = simulation.phone.content(URIS[4])
    assert [(tab["active"], tab["incognito"]) for tab in tabs] == [("0", "0"), ("1", "1")]


def test_a_typed_address_cannot_forge_a_row():
    forged = address("ebay.com/search?q=a%0aRow: 9 active=1, url=x")
    assert "," not in forged
    assert "\n" not in title(forged)


def test_an_app_can_be_installed_opened_and_removed(simulation):
    simulation.open("Play Store")
    simulation.enter("search", "Netflix")
    simulation.tap("install")
    assert simulation.phone.third_party == ["com.netflix.mediaclient"]
    simulation.tap("open")
    assert simulation.phone.foreground == "com.netflix.mediaclient/.MainActivity"
    assert simulation.phone.uninstall("com.netflix.mediaclient")
    assert simulation.phone.foreground == "com.android.launcher3/.Launcher"
    assert not simulation.phone.uninstall("com.android.chrome")
    assert "com.netflix.mediaclient" not in simulation.phone.packages


def test_a_component_can_be_started_with_a_page(simulation):
    assert simulation.phone.start("com.android.chrome/.Main", "https://costco.com/cart")
    assert url(simulation) == "https://www.costco.com/cart"
    assert simulation.phone.start("com.android.settings")
    assert simulation.phone.foreground == "com.android.settings/.Settings"
    assert not simulation.phone.start("com.unknown/.Main")
