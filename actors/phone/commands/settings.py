"""settings, getprop, setprop, svc and content: what is stored on the phone."""

from __future__ import annotations

import re

from actors.phone.process import Call, options

_SWITCHES = {  # svc NAME enable|disable, and cmd NAME: the global setting behind it
    "bluetooth": "bluetooth_on",
    "data": "mobile_data",
    "nfc": "nfc_on",
    "wifi": "wifi_on",
}


def settings(call: Call) -> int | None:
    """settings [--user N] get|put|delete|list|reset NAMESPACE [KEY [VALUE]]"""
    words = options(call.args[:2], with_value="--user")[1] + call.args[2:]
    if len(words) < 2:
        return call.error("usage: settings get|put|delete|list NAMESPACE [KEY [VALUE]]", 255)
    verb, namespace, *args = words
    phone = call.android.phone
    if namespace not in phone.settings:
        return call.error(f"Invalid namespace '{namespace}'", 255)
    values = phone.settings[namespace]
    match verb, args:
        case "get", [key, *_]:
            call.print(values.get(key, "null"))
        case "put", [key, value, *_]:
            values[key] = value
            phone.refresh()
        case "delete", [key, *_]:
            call.print(f"Deleted {int(values.pop(key, None) is not None)} rows")
            phone.refresh()
        case "list", _:
            call.print(*(f"{key}={values[key]}" for key in sorted(values)))
        case "reset", _:
            pass  # only drops what an app had set, and no app of this phone does
        case _:
            return call.error("Bad arguments", 255)
    return None


def getprop(call: Call):
    properties = call.android.properties
    if "slow_boot" in call.android.faults.rates:
        properties = {**properties, "sys.boot_completed": "", "init.svc.bootanim": "running"}
    if call.args:
        default = call.args[1] if len(call.args) > 1 else ""
        call.print(properties.get(call.args[0], default))
    else:
        call.print(*(f"[{key}]: [{properties[key]}]" for key in sorted(properties)))


def setprop(call: Call) -> int | None:
    if len(call.args) != 2:
        return call.error("setprop: Need 2 arguments")
    if call.args[0].startswith("ro."):
        return call.error(f"Failed to set property '{call.args[0]}' to '{call.args[1]}'.")
    if call.args[0] == "debug.simphone.faults":
        try:
            call.android.switch(call.args[1])
        except ValueError as error:
            return call.error(f"setprop: {error}")
    call.android.properties[call.args[0]] = call.args[1]
    return None


def svc(call: Call) -> int | None:
    """svc wifi|data|bluetooth|nfc enable|disable; svc power stayon is accepted."""
    name, verb = (*call.args, "", "")[:2]
    if name == "power":
        return None
    if name not in _SWITCHES or verb not in ("enable", "disable"):
        return call.error(f"Usage: svc {'|'.join(_SWITCHES)} enable|disable", 255)
    switch(call, name, verb == "enable")
    return None


def switch(call: Call, name: str, on: bool):
    """Turns wifi, data, bluetooth or nfc on or off."""
    call.android.phone.settings["global"][_SWITCHES[name]] = str(int(on))
    call.android.phone.refresh()


def content(call: Call) -> int | None:
    """content query|delete --uri URI [--projection A:B] [--where "A='x' AND B=1"]"""
    verb, *args = call.args or [""]
    flags, _ = options(args, with_value="--uri --projection --where --sort --user --method --arg")
    if verb not in ("query", "delete") or not flags.get("--uri"):
        return call.error(f"[ERROR] Unsupported operation: {verb}", 1)
    uri = flags["--uri"]
    where = _where(flags.get("--where", ""))
    rows = call.android.phone.content(uri)
    if rows is None:
        provider = uri.removeprefix("content://").split("/")[0]
        return call.error(
            f"Error while accessing provider:{provider}\n"
            f"java.lang.IllegalStateException: Could not find provider: {provider}"
        )
    if where is None:
        return call.error(f"[ERROR] Unsupported where: {flags['--where']}")
    if verb == "delete":
        call.android.phone.content_delete(uri, where)
        return None
    rows = [row for row in rows if all(row.get(key) == where[key] for key in where)]
    names = [name for name in flags.get("--projection", "").split(":") if name]
    for number, row in enumerate(rows):
        shown = {name: row.get(name, "NULL") for name in names} or row
        call.print(f"Row: {number} " + ", ".join(f"{key}={shown[key]}" for key in shown))
    if not rows:
        call.print("No result found.")
    return None


def _where(clause: str) -> dict[str, str] | None:
    """Reads a='x' AND b=1; None if it is anything else."""
    conditions = {}
    for part in re.split(r"\s+AND\s+", clause, flags=re.IGNORECASE) if clause else ():
        match = re.fullmatch(r"""\s*(\w+)\s*=\s*(?:'([^']*)'|"([^"]*)"|(-?\d+))\s*""", part)
        if not match:
            return None
        conditions[match[1]] = match[2] or match[3] or match[4] or ""
    return conditions


COMMANDS = {
    "content": content,
    "getprop": getprop,
    "setprop": setprop,
    "settings": settings,
    "svc": svc,
}
