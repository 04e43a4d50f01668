"""cmd, service, date, logcat, whoami, uname, ps and other questions about the system."""

from __future__ import annotations

import datetime
import inspect
import re
import time

from actors.phone.android import ADB_KEYBOARD
from actors.phone.commands import activity, package, screen, settings
from actors.phone.process import Call, options

_DATE = re.compile(r"(\d\d)(\d\d)(\d\d)(\d\d)(?:(\d\d)?(\d\d))?(?:\.(\d\d))?")


async def cmd(call: Call) -> int | None:
    """cmd SERVICE WORDS...: the same commands under the names of their services."""
    name, *args = call.args or [""]
    inner = Call(call.android, call.shell, name, args, call.streams)
    function = _SERVICES.get(name)
    if function is not None:
        result = function(inner)
        return await result if inspect.isawaitable(result) else result
    if name == "-l":
        call.print("Currently running services:", *(f"  {service}" for service in _SERVICES))
        return None
    return call.error(f"cmd: Can't find service: {name}", 20)


def _switched(call: Call) -> int | None:
    """cmd wifi set-wifi-enabled enabled, cmd bluetooth_manager enable, cmd connectivity ..."""
    word = call.args[-1] if call.args else ""
    name = {"bluetooth_manager": "bluetooth", "phone": "data"}.get(call.name, call.name)
    if word in ("enable", "enabled", "disable", "disabled"):
        settings.switch(call, name, word.startswith("enable"))
        return None
    return call.error(f"cmd: {call.name}: unknown command", 255)


def _connectivity(call: Call) -> int | None:
    if call.args[:1] != ["airplane-mode"]:
        return call.error("cmd: connectivity: unknown command", 255)
    values = call.android.phone.settings["global"]
    if len(call.args) == 1:
        call.print("enabled" if values.get("airplane_mode_on") == "1" else "disabled")
    else:
        values["airplane_mode_on"] = str(int(call.args[1] == "enable"))
        call.android.phone.refresh()
    return None


def _accepted(call: Call):
    """Status bar, keyguard and the like: there is nothing to change."""


_SERVICES = {
    "activity": activity.am,
    "bluetooth_manager": _switched,
    "connectivity": _connectivity,
    "package": package.pm,
    "phone": _switched,
    "settings": settings.settings,
    "statusbar": _accepted,
    "wifi": _switched,
    "window": screen.wm,
}


def service(call: Call) -> int | None:
    verb, *args = call.args or [""]
    if verb == "check" and args:
        call.print(f"Service {args[0]}: found")
    elif verb == "list":
        call.print(f"Found {len(_SERVICES)} services:")
        call.print(*(f"{i}\t{name}: []" for i, name in enumerate(_SERVICES)))
    elif verb == "call" and len(args) > 1:
        call.print("Result: Parcel(00000000    '....')")
    else:
        return call.error("Usage: service list|check|call", 10)
    return None


def date(call: Call) -> int | None:
    """date [-u] [+FORMAT | SECONDS | MMDDhhmm[[CC]YY][.ss]]: the phone's clock only moves by it."""
    words = options(call.args)[1]
    now = time.gmtime(call.android.now)
    if not words:
        call.print(time.strftime("%a %b %e %H:%M:%S UTC %Y", now))
    elif words[0].startswith("+"):
        call.print(_strftime(words[0][1:], call.android.now))
    else:
        moment = _moment(words[0], now.tm_year)
        if moment is None:
            return call.error(f"date: bad date '{words[0]}'")
        call.android.now = moment
        call.print(time.strftime("%a %b %e %H:%M:%S UTC %Y", time.gmtime(moment)))
    return None


def _strftime(template: str, moment: int) -> str:
    template = template.replace("%s", str(moment)).replace("%N", "000000000")
    return time.strftime(template, time.gmtime(moment))


def _moment(text: str, year: int) -> int | None:
    """Reads MMDDhhmm[[CC]YY][.ss] or @seconds; None if it is no date."""
    if text.startswith("@") and text[1:].isdecimal() and len(text) < 12:
        return int(text[1:])
    match = _DATE.fullmatch(text)
    if not match:
        return None
    month, day, hour, minute = map(int, match.groups()[:4])
    century, short, second = match.groups(default="")[4:]
    if short:
        year = int((century or "20") + short)
    try:
        moment = datetime.datetime(
            year, month, day, hour, minute, int(second or 0), tzinfo=datetime.UTC
        )
    except ValueError:
        return None
    return int(moment.timestamp())


def logcat(call: Call):
    """There is no log; what follows one would wait for ever, so it ends at once."""
    if "-c" not in call.args and "--clear" not in call.args:
        call.print("--------- beginning of main")


def whoami(call: Call):
    call.print("root")


def id_(call: Call):
    call.print("0" if "-u" in call.args else "uid=0(root) gid=0(root) groups=0(root)")


def uname(call: Call):
    full = "Linux localhost 5.15.0-simphone #1 SMP PREEMPT x86_64 Toybox"
    call.print(full if "-a" in call.args else "x86_64" if "-m" in call.args else "Linux")


def uptime(call: Call):
    call.print(" 12:00:00 up 0 min,  0 users,  load average: 0.00, 0.00, 0.00")


def ps(call: Call):
    call.print("USER  PID PPID     VSZ    RSS WCHAN ADDR S NAME")
    names = ["system_server", call.android.phone.foreground.partition("/")[0]]
    call.print(*(f"u0_a{i} {1000 + i} 1 1000000 100000 0 0 S {n}" for i, n in enumerate(names)))


def pidof(call: Call) -> int | None:
    front = call.android.phone.foreground.partition("/")[0]
    if front not in call.args:
        return 1
    call.print("1001")
    return None


def ime(call: Call) -> int | None:
    """ime list [-a] [-s], ime enable|set|reset METHOD"""
    methods = ["com.android.inputmethod.latin/.LatinIME"]
    if ADB_KEYBOARD.partition("/")[0] in call.android.phone.packages:
        methods.append(ADB_KEYBOARD)
    if call.args[:1] == ["list"]:
        call.print(*methods)
    elif call.args[:1] not in (["enable"], ["set"], ["reset"]):
        return call.error("Usage: ime list|enable|set", 255)
    elif any(method not in methods for method in call.args[1:]):
        return call.error(
            f"Unknown input method {call.args[1]} cannot be selected for user #0", 255
        )
    elif call.args[:1] == ["set"]:
        call.android.phone.settings["secure"]["default_input_method"] = call.args[1]
    return None


def ip(call: Call):
    """ip addr show dev wlan0, ifconfig wlan0"""
    call.print("3: wlan0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500", "    inet 10.0.2.16/24")


COMMANDS = {
    "cmd": cmd,
    "date": date,
    "id": id_,
    "ifconfig": ip,
    "ime": ime,
    "ip": ip,
    "locksettings": _accepted,
    "logcat": logcat,
    "pidof": pidof,
    "ps": ps,
    "service": service,
    "uname": uname,
    "uptime": uptime,
    "whoami": whoami,
}
