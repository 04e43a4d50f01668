"""echo, cat, grep, head, tail, wc, sort, printf and the like."""

from __future__ import annotations

import binascii
import re

from actors.phone.process import Call, options

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "a": "\a", "0": "\0"}


def echo(call: Call):
    words = list(call.args)
    flags = ""
    while words and re.fullmatch(r"-[neE]+", words[0]):
        flags += words.pop(0)
    text = " ".join(words)
    text = _unescaped(text) if "E" not in flags else text  # mksh's echo reads escapes by itself
    call.write(f"{text}{'' if 'n' in flags else chr(10)}".encode(errors="surrogateescape"))


def printf(call: Call) -> int | None:
    if not call.args:
        return call.error("printf: usage: printf format [argument ...]")
    template, *values = call.args
    specs = len(re.findall(r"%(?!%)", template))
    while True:
        call.write(
            _formatted(_unescaped(template), values[:specs]).encode(errors="surrogateescape")
        )
        values = values[specs:]
        if not values or not specs:
            return None


def _formatted(template: str, values: list[str]) -> str:
    rest = iter(values)

    def one(match: re.Match) -> str:
        flags, kind = match[1], match[2]
        if kind == "%":
            return "%"
        value = next(rest, "")
        if kind == "b":
            return _unescaped(value)
        number = re.match(r"\s*[-+]?\d{1,18}", value)
        if kind in "dixX":
            return f"%{flags}{kind}" % int(number[0] if number else 0)
        return f"%{flags}s" % value

    return re.sub(r"%(-?0?\d{0,3})([%sdixXb])", one, template)


def _unescaped(text: str) -> str:
    return re.sub(r"\\([ntra0\\])", lambda match: _ESCAPES[match[1]], text)


async def _inputs(call: Call, paths: list[str]) -> bytes:
    """Returns the contents of files, or standard input if there are none."""
    if not paths or paths == ["-"]:
        return await call.streams.stdin.read()
    return b"".join([call.android.files.read(call.path(path)) for path in paths])


async def cat(call: Call):
    call.write(await _inputs(call, options(call.args)[1]))


async def grep(call: Call) -> int:
    flags, words = options(call.args, with_value="-e -m -A -B -C")
    letters = "".join(flag.lstrip("-") for flag in flags if not flag.startswith("--"))
    pattern = flags["-e"] if "-e" in flags else words.pop(0) if words else None
    if pattern is None:
        return call.error("grep: no pattern", 2)
    if "F" in letters or call.name == "fgrep":
        pattern = re.escape(pattern)
    elif "E" not in letters and call.name != "egrep":
        pattern = _extended(pattern)
    try:
        regex = re.compile(pattern.encode(errors="surrogateescape"), re.I if "i" in letters else 0)
    except re.error as error:
        return call.error(f"grep: bad regex '{pattern}': {error}", 2)
    if "w" in letters:
        regex = re.compile(rb"\b(?:%s)\b" % regex.pattern, regex.flags)
    match = regex.fullmatch if "x" in letters else regex.search
    lines = (await _inputs(call, words)).splitlines()
    found = [
        (number, line)
        for number, line in enumerate(lines, 1)
        if bool(match(line)) != ("v" in letters)
    ]
    if "o" in letters:
        found = [(number, part[0]) for number, line in found for part in regex.finditer(line)]
    if "-m" in flags and flags["-m"].isdecimal():
        found = found[: int(flags["-m"])]
    if "c" in letters:
        call.print(str(len(found)))
    elif "q" not in letters:
        numbered = "n" in letters
        for number, line in found:
            call.write((b"%d:%b\n" % (number, line)) if numbered else line + b"\n")
    return int(not found)


def _extended(basic: str) -> str:
    r"""Returns a basic regex as an extended one: \( \| \+ are operators there and ( | + not."""
    return re.sub(r"\\([(){}|+?])|([(){}|+?])", lambda m: m[1] or "\\" + m[2], basic)


async def head(call: Call):
    flags, words = options(call.args, with_value="-n -c")
    data = await _inputs(call, words)
    if "-c" in flags:
        call.write(data[: _count(flags, "-c")])
    else:
        call.write(b"".join(data.splitlines(keepends=True)[: _count(flags, "-n")]))


async def tail(call: Call):
    flags, words = options(call.args, with_value="-n -c")
    data = await _inputs(call, words)
    if "-c" in flags:
        call.write(data[max(0, len(data) - _count(flags, "-c")) :])
    else:
        lines = data.splitlines(keepends=True)
        call.write(b"".join(lines[max(0, len(lines) - _count(flags, "-n")) :]))


def _count(flags: dict[str, str], name: str) -> int:
    """Returns the value of -n, which may also be written as -5; 10 if there is none."""
    short = next((flag[1:] for flag in flags if flag[1:].isdecimal()), "10")
    value = flags.get(name, short).lstrip("+-")
    return int(value) if value.isdecimal() else 10


async def wc(call: Call):
    flags, words = options(call.args)
    data = await _inputs(call, words)
    counts = {"-l": data.count(b"\n"), "-w": len(data.split()), "-c": len(data)}
    shown = [str(counts[flag]) for flag in counts if flag in flags or not flags]
    call.print(" ".join(shown + words))


async def sort(call: Call):
    flags, words = options(call.args, with_value="-k -t")
    lines = (await _inputs(call, words)).splitlines()
    lines = sorted(set(lines) if "-u" in flags else lines, reverse="-r" in flags)
    call.write(b"".join(line + b"\n" for line in lines))


async def uniq(call: Call):
    lines = (await _inputs(call, options(call.args)[1])).splitlines()
    kept = [line for index, line in enumerate(lines) if index == 0 or line != lines[index - 1]]
    call.write(b"".join(line + b"\n" for line in kept))


async def base64(call: Call) -> int | None:
    flags, words = options(call.args, with_value="-w")
    data = await _inputs(call, words)
    try:
        call.write(binascii.a2b_base64(data) if "-d" in flags else binascii.b2a_base64(data))
    except binascii.Error:
        return call.error("base64: bad input")
    return None


COMMANDS = {
    "base64": base64,
    "cat": cat,
    "echo": echo,
    "egrep": grep,
    "fgrep": grep,
    "grep": grep,
    "head": head,
    "printf": printf,
    "sort": sort,
    "tail": tail,
    "uniq": uniq,
    "wc": wc,
}
