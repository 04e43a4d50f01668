"""screencap, wm and uiautomator: what is on the screen."""

from __future__ import annotations

from actors.phone.nodes import nodes_to_xml
from actors.phone.process import Call, options

_DUMP = "/sdcard/window_dump.xml"


def screencap(call: Call) -> int | None:
    """screencap [-p] [-d DISPLAY] [FILE]: a PNG with -p or for a .png, else raw pixels."""
    flags, words = options(call.args, with_value="-d")
    android = call.android
    path = words[0] if words else "-"
    if android.faults.hit("png_failed"):
        return call.error("Capturing failed.")
    if "-p" in flags or path.endswith(".png"):
        data = [_spoilt(call, android.png())]
    else:
        data = [android.raw_header(), android.raw()]
    if path == "-":
        for part in data:
            call.write(part)
        return None
    try:
        call.save(path, b"".join(data))
    except OSError as error:
        return call.error(f"Error opening file: {path} ({error.strerror})")
    return None


def _spoilt(call: Call, png: bytes) -> bytes:
    faults = call.android.faults
    if faults.hit("png_warning"):
        png = b"[Warning] Multiple displays were found, but no display id was specified!\n" + png
    if faults.hit("png_crlf"):
        png = png.replace(b"\n", b"\r\n")
    if faults.hit("png_cut"):
        png = png[: len(png) // 2]
    return b"" if faults.hit("png_empty") else png


def wm(call: Call) -> int | None:
    """wm size, wm density: the screen of this phone cannot be overridden."""
    what, *args = call.args or [""]
    if what == "size" and not args:
        call.print("Physical size: {}x{}".format(*call.android.phone.size))
        if call.android.input_size != call.android.phone.size:
            call.print("Override size: {}x{}".format(*call.android.input_size))
    elif what == "density" and not args:
        call.print(f"Physical density: {call.android.density}")
    elif what in ("size", "density") and args != ["reset"]:
        return call.error(f"wm: the {what} of this phone is fixed", 255)
    elif what not in ("size", "density", "dismiss-keyguard"):
        return call.error(f"Unknown command: {what}", 255)
    return None


def uiautomator(call: Call) -> int | None:
    """uiautomator dump [--compressed] [FILE]"""
    if call.args[:1] != ["dump"]:
        return call.error("Usage: uiautomator dump [--compressed] [FILE]", 1)
    words = options(call.args[1:])[1]
    path = words[0] if words else _DUMP
    nodes = [] if call.android.faults.hit("no_views") else call.android.phone.nodes()
    call.save(path, nodes_to_xml(nodes).encode())
    call.print(f"UI hierchary dumped to: {path}")  # Android's own spelling
    return None


COMMANDS = {"screencap": screencap, "uiautomator": uiautomator, "wm": wm}
