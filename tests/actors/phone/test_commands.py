"""The phone's commands print what Android's print, and do it to the phone."""

import asyncio
import functools
import io
import re
import struct
import xml.etree.ElementTree as ElementTree

import pytest
from PIL import Image

from actors.phone.android import Android
from actors.phone.commands import COMMANDS
from actors.phone.nodes import nodes_from_xml
from actors.phone.phone import Phone
from actors.phone.process import Input, Output, Streams
from actors.phone.shell import Shell
from tests.actors.phone.simulation import run_line


@pytest.fixture
def android():
    return Android(Phone(seed=1))


@pytest.fixture
def run(android):
    """Runs a command line; returns stdout as bytes, stderr as text, and the status."""
    return functools.partial(run_line, android)


@pytest.fixture
def out(run):
    """Runs a command line that must succeed in silence; returns its output as text."""

    def out(line):
        text, err, status = run(line)
        assert (err, status) == ("", 0)
        return text.decode()

    return out


def focus(android):
    """Gives Chrome's first text field the focus."""
    android.phone.start("com.android.chrome")
    field = next(n for n in android.phone.nodes() if n.class_name == "android.widget.EditText")
    x0, y0, x1, y1 = field.bounds
    android.phone.tap((x0 + x1) / 2, (y0 + y1) / 2)
    assert android.phone.focus is not None


# The screen.


def test_screencap_writes_png_or_raw_to_stdout_or_a_file(android, out, run):
    pixels = android.phone.render()
    with Image.open(io.BytesIO(run("screencap -p")[0])) as image:
        assert image.tobytes() == pixels.tobytes()
    raw = run("screencap")[0]
    assert struct.unpack("<4I", raw[:16]) == (360, 640, 1, 1)
    assert raw[16:] == pixels.convert("RGBA").tobytes()
    out("screencap -p /sdcard/a; screencap /sdcard/b.png; screencap /sdcard/c")
    assert android.files.read("/sdcard/a") == android.files.read("/sdcard/b.png") == android.png()
    assert android.files.read("/sdcard/c") == raw
    assert run("screencap -p /none/a")[2] == 1


def test_a_frame_is_encoded_once_for_each_revision(android, monkeypatch):
    renders = []
    render = android.phone.render
    monkeypatch.setattr(android.phone, "render", lambda: renders.append(1) or render())
    first = android.png()
    assert android.png() is first
    assert len(renders) == 1
    android.phone.start("com.android.settings")
    assert android.png() != first
    assert len(renders) == 2


def test_wm(out, run):
    assert out("wm size") == "Physical size: 360x640\n"
    assert out("wm density") == "Physical density: 160\n"
    assert out("cmd window size") == out("wm size")
    assert run("wm size 100x100")[2] == 255


@pytest.mark.parametrize("package", ["com.android.launcher3", "com.android.chrome"])
def test_uiautomator_dumps_every_view(android, out, package):
    android.phone.start(package)
    assert out("uiautomator dump") == "UI hierchary dumped to: /sdcard/window_dump.xml\n"
    xml = android.files.read("/sdcard/window_dump.xml").decode()
    nodes = android.phone.nodes()
    assert nodes_from_xml(xml) == nodes
    assert out("uiautomator dump /dev/tty") == f"{xml}UI hierchary dumped to: /dev/tty\n"


def test_a_dump_is_xml_whatever_is_on_the_screen(android, out):
    focus(android)
    android.phone.type_text("<a b=\"c\"> & 'd'")
    ElementTree.fromstring(out("uiautomator dump /dev/tty").partition("UI hier")[0])


# Input.


def test_tap_and_swipe_take_whole_and_broken_pixels(android, out, monkeypatch):
    calls = []
    monkeypatch.setattr(android.phone, "tap", lambda *a: calls.append(a))
    monkeypatch.setattr(android.phone, "swipe", lambda *a: calls.append(a))
    out("input tap 10 20; input tap 10.9 20.0; input touchscreen tap 1 2; input -d 0 tap 3 4")
    assert calls == [(10, 20), (10, 20), (1, 2), (3, 4)]
    calls.clear()
    out("input swipe 1 2 3 4; input swipe 1 2 3 4 900; input swipe 1 2 3 4 ''")
    assert calls == [(1, 2, 3, 4, 300), (1, 2, 3, 4, 900), (1, 2, 3, 4, 300)]


@pytest.mark.parametrize(
    ("argument", "typed"),
    [
        ("hello", "hello"),
        ("hello world", "hello"),  # Android takes one word
        ("hello%sworld", "hello world"),
        ("'hello world'", "hello world"),
        ("100%sure", "100 ure"),
        ("%%s", "% "),
        ("%", "%"),
        ("'a&b|c;d'", "a&b|c;d"),
        ("-x", "-x"),
    ],
)
def test_text(android, out, argument, typed):
    focus(android)
    out(f"input text {argument}")
    assert android.phone.typed == typed


def test_text_that_no_key_types_is_a_null_pointer(android, run):
    focus(android)
    _, err, status = run("input text 'café'")
    assert "java.lang.NullPointerException: Attempt to get length of null array" in err
    assert (status, android.phone.typed) == (255, "")


def test_text_without_a_field_is_lost_in_silence(out):
    assert out("input text lost") == ""


def test_keys_by_number_and_name(android, out, run, monkeypatch):
    pressed = []
    monkeypatch.setattr(android.phone, "key", pressed.append)
    monkeypatch.setattr(android.phone, "type_text", pressed.append)
    out("input keyevent 3; input keyevent KEYCODE_BACK; input keyevent enter 67")
    out("input keyevent --longpress 26; input keyevent 29 62 KEYCODE_7")
    assert pressed == ["HOME", "BACK", "ENTER", "DEL", "POWER", "a", " ", "7"]
    assert run("input keyevent NONE")[2] == 255


def test_a_field_is_cleared_by_its_key_combination(android, out):
    focus(android)
    android.phone.type_text("something old")
    out("input keycombination 113 29 && input keyevent 67")
    assert android.phone.typed == ""
    out("input text ab; input keycombination CTRL_LEFT A; input text new")
    assert android.phone.typed == "new"
    out("input keycombination 113 29; input keyevent 61 67 67; input text x")
    assert android.phone.typed == "x"


@pytest.mark.parametrize(
    "line", ["input", "input tap", "input tap 1", "input tap a b", "input fly"]
)
def test_bad_input_is_255(run, line):
    text, err, status = run(line)
    assert (text, status) == (b"", 255)
    assert err


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999", "٣", "0x10", "1_0"])
def test_coordinates_that_python_alone_understands(android, run, number):
    assert run(f"input tap {number} 1")[2] in (0, 255)


# Apps.


def test_start_and_stop(android, out, run):
    text = out("am start -n com.android.settings/.Settings")
    assert text == "Starting: Intent { cmp=com.android.settings/.Settings }\n"
    assert android.phone.foreground.startswith("com.android.settings/")
    assert "brought to the front" in run("am start -n com.android.settings/.Settings")[1]
    out("am force-stop com.android.settings")
    assert android.phone.foreground.startswith("com.android.launcher3/")
    waited = out("am start  -W -S '' -n com.android.settings/.Settings")
    assert "Status: ok\n" in waited
    out("am start -a android.intent.action.MAIN -c android.intent.category.HOME")
    assert android.phone.foreground.startswith("com.android.launcher3/")
    out("am start -a android.settings.WIFI_SETTINGS")
    assert android.phone.foreground.startswith("com.android.settings/")


def test_start_of_what_is_not_there(run):
    text, err, status = run("am start -n org.none/.Main")
    assert text == b"Starting: Intent { cmp=org.none/.Main }\n"
    assert err.startswith("Error type 3\nError: Activity class {org.none/org.none.Main} does not")
    assert status == 1
    assert run("am start -a org.NOTHING")[2] == 1
    assert run("monkey -p org.none 1")[0].startswith(b"** No activities found")
    assert run("monkey -p org.none 1")[2] == 252


def test_a_page_opens_in_the_browser(android, out):
    out("am start -a android.intent.action.VIEW -d http://www.ebay.com")
    assert android.phone.foreground.startswith("com.android.chrome/")
    assert "ebay" in out("content query --uri content://com.android.chrome/tabs")


def test_monkey_starts_a_package(android, out):
    out("monkey -p com.android.chrome -c android.intent.category.LAUNCHER 1")
    assert android.phone.foreground.startswith("com.android.chrome/")


def test_the_reset_broadcast_makes_a_fresh_phone(android, out, run):
    out("echo x > /sdcard/x; settings put system a b; setprop a b; am start com.android.chrome")
    out("am broadcast -a org.simphone.RESET --ei seed 7")
    fresh = Phone(seed=7)
    assert android.phone.settings == fresh.settings
    assert android.phone.nodes() == fresh.nodes()
    assert out("getprop a; ls /sdcard/") == "\nDownload\nPictures\n"
    assert run("am broadcast -a org.simphone.RESET --ei seed x")[2] == 255
    assert "result=0" in out("am broadcast -a org.other")


def test_packages(android, out, run):
    listed = out("pm list packages").splitlines()
    assert listed == [f"package:{package}" for package in android.phone.packages]
    assert out("cmd package list packages chrome") == "package:com.android.chrome\n"
    assert out("pm path com.android.chrome").startswith("package:/data/app/")
    assert run("pm path org.none") == (b"", "", 1)
    assert out("pm clear com.android.chrome") == "Success\n"
    assert run("pm clear org.none")[0] == b"Failed\n"


def test_install_from_a_file_and_from_standard_input(android, out, run):
    android.files.write("/data/local/tmp/org.example.apk", b"whatever")
    assert out("pm install -r -t /data/local/tmp/org.example.apk") == "Success\n"
    assert run("cmd package install -r -S 9", stdin=b"org.otherREST")[0] == b"Success\n"
    assert out("pm list packages -3") == "package:org.example\npackage:org.other\n"
    assert run("cmd package install -S 4", stdin=b"PK\3\4")[0].startswith(b"Failure")
    assert out("pm uninstall org.example") == "Success\n"
    assert run("pm uninstall com.android.settings")[2] == 1


@pytest.mark.parametrize("service", ["window", "window windows", "window displays"])
def test_the_focused_window_is_the_app_in_front(android, out, service):
    android.phone.start("com.google.android.deskclock")
    focused = re.search(r"mCurrentFocus=Window\{\w+ u0 (\S+)/(\S+)\}", out(f"dumpsys {service}"))
    assert focused[1] == "com.google.android.deskclock"
    assert focused[2].startswith("com.")  # the class in full


def test_dumpsys(android, out):
    front = re.escape(android.phone.foreground)
    assert re.search(
        rf"topResumedActivity=ActivityRecord{{\w+ u0 {front} t\d+}}",
        out("dumpsys activity activities"),
    )
    assert re.search(rf"ACTIVITY {front} \w+ pid=\d+", out("dumpsys activity top"))
    assert "orientation=0, logicalFrame=Rect(0, 0 - 360, 640)" in out("dumpsys display")
    assert "logicalFrame=[0, 0, 360, 640]" in out("dumpsys input | grep logicalFrame")
    assert "  level: 100\n" in out("dumpsys battery")
    assert out("dumpsys window | grep mCurrentRotation") == "    mCurrentRotation=ROTATION_0\n"
    assert out("dumpsys input_method | grep mInputShown") == "  mInputShown=false\n"
    assert "visible=true topActivity=ComponentInfo{" in out("am stack list | grep visible=true")


# What is stored.


def test_settings(android, out, run):
    assert out("settings get system none") == "null\n"
    out("settings put system some 'a value'; settings --user 0 put global x 1")
    assert out("settings get system some; settings get global x") == "a value\n1\n"
    assert "some=a value\n" in out("settings list system")
    assert out("settings delete system some") == "Deleted 1 rows\n"
    assert out("settings delete system some") == "Deleted 0 rows\n"
    assert run("settings get nowhere x")[2] == 255
    assert run("settings get system")[2] == 255


def test_switches_show_on_the_screen(android, out):
    out("svc wifi disable; am start com.android.settings")
    assert out("settings get global wifi_on") == "0\n"
    revision = android.phone.revision
    out("svc wifi enable")
    assert out("settings get global wifi_on") == "1\n"
    out("svc wifi enable")
    assert android.phone.revision <= revision + 1


def test_properties(out, run):
    assert out("getprop ro.product.model; getprop ro.hardware") == "SimPhone\nsimphone\n"
    assert out("getprop none; getprop none default") == "\ndefault\n"
    assert "[sys.boot_completed]: [1]\n" in out("getprop")
    out("setprop debug.x 1")
    assert out("getprop debug.x") == "1\n"
    assert run("setprop ro.product.model x")[2] == 1


def test_content(android, out, run, monkeypatch):
    rows = [{"_id": "1", "name": "Ann", "x": "a b"}, {"_id": "2", "name": "Bob", "x": ""}]
    deleted = []
    monkeypatch.setattr(
        android.phone, "content", lambda uri: rows if uri == "content://a/b" else None
    )
    monkeypatch.setattr(android.phone, "content_delete", lambda *args: deleted.append(args))
    query = "content query --uri content://a/b"
    assert out(query) == "Row: 0 _id=1, name=Ann, x=a b\nRow: 1 _id=2, name=Bob, x=\n"
    assert (
        out(f"{query} --projection name:_id") == "Row: 0 name=Ann, _id=1\nRow: 1 name=Bob, _id=2\n"
    )
    assert out(f"{query} --where \"name='Bob' AND _id=2\" --projection x") == "Row: 0 x=\n"
    assert out(f"{query} --where \"name='Eve'\"") == "No result found.\n"
    out(
        "content delete --uri content://a/b --where \"_id='1'\"; content delete --uri content://a/b"
    )
    assert deleted == [("content://a/b", {"_id": "1"}), ("content://a/b", {})]
    assert run(f"{query} --where 'name LIKE x'")[2] == 1
    text, err, status = run("content query --uri content://none/x")
    assert (text, status) == (b"", 1)
    assert "Could not find provider: none" in err


# Files and text.


def test_files(out, run):
    assert (
        out("mkdir -p /sdcard/a/b && touch /sdcard/a/b/c && ls -R /sdcard/a; ls /sdcard/a")
        == "b\nb\n"
    )
    assert out("cp -a /sdcard/a/. /sdcard/d/; find /sdcard/d -type f") == "/sdcard/d/b/c\n"
    assert out("mv /sdcard/d /sdcard/e; ls -1 /sdcard/e/b") == "c\n"
    assert out("ls /storage/emulated/0/e") == "b\n"
    assert re.fullmatch(
        r"-rw-rw---- 1 root sdcard_rw +0 2025-01-01 12:00 c\n", out("cd /sdcard/e/b; ls -l c")
    )
    assert run("rm /sdcard/e")[2] == 1
    assert (
        out("rm -r /sdcard/e /sdcard/a; rm -f /sdcard/none; ls /sdcard") == "Download\nPictures\n"
    )
    assert run("ls /none") == (b"", "ls: /none: No such file or directory\n", 1)
    assert run("cat /none")[1:] == ("cat: /none: No such file or directory\n", 1)
    assert run("mkdir /none/a")[2] == 1
    assert run("cp -r /sdcard /sdcard/x")[2] == 1
    assert out("echo abc > /sdcard/f; stat -c %s /sdcard/f; md5sum /sdcard/f").startswith(
        "4\n0bee89b0"
    )


def test_text_tools(out, run):
    assert out("printf 'b\\na\\nb\\n' | sort -u") == "a\nb\n"
    assert out("printf '1\\n2\\n3\\n' | head -n 2 | tail -1") == "2\n"
    assert out("printf 'a\\nb\\nab\\n' | grep -c a; echo xy | grep -o y") == "2\ny\n"
    assert (
        out("echo 'Ab' | grep -i 'aB$'; echo a.b | grep -F .; echo b | grep -v a") == "Ab\na.b\nb\n"
    )
    assert (
        out(r"echo aab | grep 'a\{2\}b'; echo 'a|b' | grep 'a|b'; echo b | grep -E 'a|b'")
        == "aab\na|b\nb\n"
    )
    assert run("echo a | grep '['")[2] == 2
    assert out("printf '%d-%s|' 1 a 2 b") == "1-a|2-b|"
    assert out("printf '%5s|%-3s|%03d%%' a b 7") == "    a|b  |007%"
    assert out("echo -n a; echo -e 'b\\tc'") == "ab\tc\n"
    assert out("echo YQo= | base64 -d") == "a\n"
    assert out("echo a b | wc -w") == "2\n"


def test_the_clock_stands_until_it_is_set(out, run):
    assert out("date +%s; date '+%Y-%m-%d %H:%M'") == "1735732800\n2025-01-01 12:00\n"
    out("date 1015153423.00")
    assert out("date '+%m-%d %H:%M'") == "10-15 15:34\n"
    assert run("date nonsense")[2] == 1


def test_every_command_stands_any_words(android):
    """Nothing but a status comes back, whatever the words; `sleep` and loops are for others."""
    options, others = ["-p", "-n", "-S", "-c", "--uri"], ["list", "get", "a/b", "/sdcard", "/no/x"]
    words = [*options, *others, "0", "²", "%d", "[", "é", ""]

    async def run_all():
        for name in sorted(COMMANDS.keys() - {"sleep", "exit"}):
            for count in range(4):
                for start in range(len(words)):
                    args = [words[(start + i * 5) % len(words)] for i in range(count)]
                    streams = Streams(Input(b"in\n"), Output(), Output())
                    status = await Shell(android).command([name, *args], streams)
                    assert 0 <= status <= 255, (name, args)

    asyncio.run(asyncio.wait_for(run_all(), 60))
