"""What a shell does itself: variables, directories, tests, and running other commands."""

from __future__ import annotations

import asyncio
import re

from actors.phone.process import Call, ShellExit, options


def true(call: Call):
    pass


def false(call: Call) -> int:
    return 1


def cd(call: Call) -> int | None:
    path = call.path(call.args[0] if call.args else "/")
    if not call.android.files.is_dir(path):
        return call.error(f"/system/bin/sh: cd: {path}: No such file or directory", 2)
    call.shell.cwd = path
    return None


def pwd(call: Call):
    call.print(call.shell.cwd)


def export(call: Call):
    for word in call.args:
        name, assigned, value = word.partition("=")
        if assigned:
            call.shell.variables[name] = value


def unset(call: Call):
    for name in call.args:
        call.shell.variables.pop(name, None)


def env(call: Call):
    call.print(*(f"{name}={value}" for name, value in sorted(call.shell.variables.items())))


async def read(call: Call) -> int:
    """Reads a line into variables; the last one takes what is left of it."""
    names = options(call.args, with_value="-p -t")[1] or ["REPLY"]
    line = await call.streams.stdin.read_line()
    values = line.decode(errors="surrogateescape").split(maxsplit=len(names) - 1)
    values += [""] * (len(names) - len(values))
    call.shell.variables |= zip(names, (value.rstrip("\n") for value in values), strict=True)
    return int(not line)


def exit_(call: Call) -> int:
    status = call.args[0] if call.args else str(call.shell.status)
    if not status.isdecimal():
        return call.error(f"/system/bin/sh: exit: {status}: bad number")
    raise ShellExit(int(status[-9:]) & 255)


async def sleep(call: Call) -> int | None:
    """Sleeps, having handed on what was printed before."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?|\.\d+)([smhd]?)", call.args[0] if call.args else "")
    if not match:
        return call.error("sleep: bad number")
    await call.streams.flush()
    await asyncio.sleep(float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]])
    return None


async def run(call: Call) -> int:
    """exec, command, nohup, time: runs the words that follow."""
    words = [word for word in call.args if word] if call.name == "exec" else call.args
    return await call.shell.command(words, call.streams) if words else 0


async def timeout(call: Call) -> int:
    words = options(call.args[:2])[1] + call.args[2:]
    if len(words) < 2 or not re.fullmatch(r"\d{1,6}(\.\d+)?", words[0]):
        return call.error("timeout: usage: timeout SECONDS COMMAND...", 125)
    try:
        running = call.shell.command(words[1:], call.streams)
        return await asyncio.wait_for(running, float(words[0]) or None)
    except TimeoutError:
        return 143


async def sh(call: Call) -> int:
    """sh -c LINE, sh FILE, or sh with lines on standard input."""
    flags, words = options(call.args, with_value="-c")
    if "-c" in flags:
        source = flags["-c"]
    elif words:
        source = call.android.files.read(call.path(words[0])).decode(errors="surrogateescape")
    else:
        source = (await call.streams.stdin.read()).decode(errors="surrogateescape")
    return await call.shell.child().run(source, call.streams)


async def su(call: Call) -> int:
    """su [USER] COMMAND..., or su -c LINE: everything runs as root anyway."""
    words = list(call.args)
    if words and words[0] in ("0", "root", "shell"):
        words.pop(0)
    if words[:1] == ["-c"]:
        return await call.shell.child().run(" ".join(words[1:]), call.streams)
    return await call.shell.command(words, call.streams) if words else 0


async def eval_(call: Call) -> int:
    return await call.shell.child().run(" ".join(call.args), call.streams)


async def xargs(call: Call) -> int:
    words = (await call.streams.stdin.read()).decode(errors="surrogateescape").split()
    return await call.shell.command([*(call.args or ["echo"]), *words], call.streams)


def which(call: Call) -> int:
    from actors.phone.commands import COMMANDS

    found = [name for name in call.args if name in COMMANDS]
    call.print(*(f"/system/bin/{name}" for name in found))
    return int(len(found) < len(call.args))


def test(call: Call) -> int:
    """test, [ and [[ with one operator, and with ! -a -o && || between."""
    words = list(call.args)
    closing = {"[": "]", "[[": "]]"}.get(call.name)
    if closing:
        if words[-1:] != [closing]:
            return call.error(f"/system/bin/sh: {call.name}: missing {closing}", 2)
        words.pop()
    try:
        return int(not _either(call, words))
    except ValueError as error:
        return call.error(f"/system/bin/sh: {call.name}: {error}", 2)


def _either(call: Call, words: list[str]) -> bool:
    if len(words) > 3 and "-o" in words[1:-1]:
        index = words.index("-o", 1)
        return _either(call, words[:index]) or _either(call, words[index + 1 :])
    if len(words) > 3 and "-a" in words[1:-1]:
        index = words.index("-a", 1)
        return _either(call, words[:index]) and _either(call, words[index + 1 :])
    if words[:1] == ["!"] and len(words) > 1:
        return not _either(call, words[1:])
    return _single(call, words)


def _single(call: Call, words: list[str]) -> bool:
    match words:
        case []:
            return False
        case [unary, operand] if unary in _FILE_TESTS:
            path = call.path(operand)
            return bool(operand) and bool(_FILE_TESTS[unary](call.android.files, path))
        case ["-z"] if call.name == "[[":  # there, an empty value leaves no word
            return True
        case ["-n"] if call.name == "[[":
            return False
        case ["-z", operand]:
            return not operand
        case ["-n", operand] | [operand]:
            return bool(operand)
        case [left, "=" | "==", right]:
            return left == right
        case [left, "!=", right]:
            return left != right
        case [left, operator, right] if operator in _COMPARISONS:
            try:
                return _COMPARISONS[operator](int(left), int(right))
            except ValueError:
                raise ValueError(f"{left} {operator} {right}: bad number") from None
    raise ValueError(f"{' '.join(words)}: unexpected operator")


_FILE_TESTS = {
    "-d": lambda files, path: files.is_dir(path),
    "-e": lambda files, path: files.exists(path),
    "-f": lambda files, path: files.is_file(path),
    "-r": lambda files, path: files.exists(path),
    "-s": lambda files, path: files.exists(path) and files.stat(path).size > 0,
    "-w": lambda files, path: files.exists(path),
    "-x": lambda files, path: files.exists(path),
}
_COMPARISONS = {
    "-eq": int.__eq__,
    "-ne": int.__ne__,
    "-lt": int.__lt__,
    "-le": int.__le__,
    "-gt": int.__gt__,
    "-ge": int.__ge__,
}

COMMANDS = {
    ":": true,
    "[": test,
    "[[": test,
    "cd": cd,
    "command": run,
    "env": env,
    "eval": eval_,
    "exec": run,
    "exit": exit_,
    "export": export,
    "false": false,
    "nohup": run,
    "printenv": env,
    "pwd": pwd,
    "read": read,
    "set": true,
    "sh": sh,
    "sleep": sleep,
    "su": su,
    "test": test,
    "time": run,
    "timeout": timeout,
    "true": true,
    "unset": unset,
    "which": which,
    "xargs": xargs,
}
