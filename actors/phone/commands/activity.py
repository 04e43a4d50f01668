"""am and monkey: starting and stopping apps, and broadcasts."""

from __future__ import annotations

import base64

from actors.phone.process import Call, options

RESET = "org.simphone.RESET"
_BROWSER = "com.android.chrome"
_LAUNCHER = "com.android.launcher3"
_SETTINGS = "com.android.settings"

_VALUES = (
    "-a -c -d -f -i -n -p -t --user --display --activity-type --windowingMode -e --es --ez --ei"
    " --el --ef --eu --ecn --eia --esa --receiver-permission"
)
_EXTRAS = ("-e", "--es", "--ez", "--ei", "--el", "--ef", "--eu", "--ecn", "--eia", "--esa")


def component(target: str) -> str:
    """Returns a component with its class in full: a.b/.C as a.b/a.b.C."""
    package, _, name = target.partition("/")
    return f"{package}/{package + name if name.startswith('.') else name}"


def am(call: Call) -> int | None:
    verb, *args = call.args or [""]
    if verb in ("stack", "task"):
        verb = f"{verb} {args[0] if args else ''}".strip()
    function = _VERBS.get(verb)
    if function is None:
        return call.error(f"Error: unknown command '{verb}'", 255)
    return function(call, [word for word in args if word])


def _intent(args: list[str]) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Splits the words of an intent into options, extras and what is left."""
    extras, rest, index = {}, [], 0
    while index < len(args):
        if args[index] in _EXTRAS:
            key, value = (*args[index + 1 : index + 3], "", "")[:2]
            extras[key] = value
            index += 3
        else:
            rest.append(args[index])
            index += 1
    flags, words = options(rest, with_value=_VALUES)
    return flags, extras, words


def _describe(flags: dict[str, str]) -> str:
    names = {"-a": "act", "-c": "cat", "-d": "dat", "-t": "typ", "-f": "flg", "-n": "cmp"}
    shown = [
        f"{name}=[{flags[flag]}]" if flag == "-c" else f"{name}={flags[flag]}"
        for flag, name in names.items()
        if flags.get(flag)
    ]
    return "Intent { " + "".join(f"{part} " for part in shown) + "}"


def _start(call: Call, args: list[str]) -> int | None:
    """Starts what an intent names: a component, a package, a page, or a part of the system."""
    flags, _, words = _intent(args)
    if words:
        flags.setdefault("-d" if "://" in words[0] else "-n" if "/" in words[0] else "-p", words[0])
    call.print(f"Starting: {_describe(flags)}")
    phone = call.android.phone
    target, url = _resolve(flags)
    if call.android.faults.hit("am_error"):
        what = f"Activity class {{{component(target or '')}}} does not exist."
        return call.error(f"Error type 3\nError: {what}", 0)
    if target is None:
        return call.error(
            f"Error: Activity not started, unable to resolve {_describe(flags)}",
        )
    already = phone.foreground.startswith(target.partition("/")[0] + "/")
    if "-S" in flags:
        phone.force_stop(target.partition("/")[0])
    if not phone.start(target, url):
        if "-n" not in flags:
            return call.error(f"Error: Activity not started, unable to resolve {_describe(flags)}")
        return call.error(
            f"Error type 3\nError: Activity class {{{component(target)}}} does not exist."
        )
    if already and url is None and "-S" not in flags:
        call.streams.err.write(
            b"Warning: Activity not started, its current task has been brought to the front\n"
        )
    if "-W" in flags:
        call.print("Status: ok", "LaunchState: COLD", f"Activity: {phone.foreground}")
        call.print("TotalTime: 0", "WaitTime: 0", "Complete")
    return None


def _resolve(flags: dict[str, str]) -> tuple[str | None, str | None]:
    """Returns the component or package that an intent goes to, and the page it is to show."""
    action, page = flags.get("-a", ""), flags.get("-d", "")
    url = page if page.startswith(("http://", "https://")) else None
    if flags.get("-n") or flags.get("-p"):
        return flags.get("-n") or flags["-p"], url
    if url:
        return _BROWSER, url
    if action.startswith("android.settings."):
        return _SETTINGS, None
    if action.endswith("action.WEB_SEARCH"):
        return _BROWSER, None
    if flags.get("-c", "").endswith("category.HOME"):
        return _LAUNCHER, None
    return None, None


def _force_stop(call: Call, args: list[str]) -> int | None:
    words = options(args, with_value="--user")[1]
    if not words:
        return call.error('Error: Argument expected after "force-stop"', 255)
    call.android.phone.force_stop(words[0])
    return None


def _broadcast(call: Call, args: list[str]) -> int | None:
    """Tells everyone; the phone itself listens to RESET with an integer extra `seed`."""
    flags, extras, _ = _intent(args)
    action = flags.get("-a", "")
    if action == RESET:
        seed = extras.get("seed", "0")
        if not seed.isdecimal():
            return call.error(f"Error: {RESET} needs --ei seed N, a number from 0", 255)
        call.android.reset(int(seed))
    if action == "ADB_INPUT_B64" and call.android.types_anything:
        text = base64.b64decode(extras.get("msg", "")).decode(errors="replace")
        call.android.phone.type_text(text, anything=True)
    suffix = " (has extras)" if extras else ""
    call.print(f"Broadcasting: {_describe(flags)[:-1]}flg=0x400000 }}{suffix}")
    call.print("Broadcast completed: result=0")
    return None


def _tasks(call: Call, args: list[str]):
    """Lists the app in front, and the home screen behind it."""
    phone = call.android.phone
    width, height = phone.size
    bounds = f"bounds=[0,0][{width},{height}]"
    front = phone.foreground
    behind = [] if front.startswith(_LAUNCHER) else [f"{_LAUNCHER}/.Launcher"]
    tasks = [front, *behind]
    for index, task in enumerate(tasks):
        number = len(tasks) - index
        call.print(
            f"RootTask id={number} {bounds} displayId=0 userId=0",
            f"  taskId={number}: {task} {bounds} userId=0 visible={str(not index).lower()}"
            f" topActivity=ComponentInfo{{{component(task)}}}",
        )


def _accept(call: Call, args: list[str]):
    """What changes nothing on this phone."""


def _current_user(call: Call, args: list[str]):
    call.print("0")


def monkey(call: Call) -> int | None:
    """monkey -p PACKAGE ... N: starts the package's launcher activity, as this is used for."""
    flags, _ = options(call.args, with_value="-p -c -s --throttle --pct-syskeys --pct-touch")
    package = flags.get("-p", "")
    if not call.android.phone.start(package):
        call.print("** No activities found to run, monkey aborted.")
        return 252
    call.print("Events injected: 1", "## Network stats: elapsed time=0ms")
    return None


_VERBS = {
    "broadcast": _broadcast,
    "clear-debug-app": _accept,
    "force-stop": _force_stop,
    "get-current-user": _current_user,
    "kill": _force_stop,
    "kill-all": _accept,
    "stack list": _tasks,
    "stack remove": _accept,
    "start": _start,
    "start-activity": _start,
    "startservice": _accept,
    "task lock": _accept,
}

COMMANDS = {"am": am, "monkey": monkey}
