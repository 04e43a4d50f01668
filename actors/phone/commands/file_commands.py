"""ls, rm, mkdir, cp, mv, find, stat and the like, on the phone's files."""

from __future__ import annotations

import hashlib
import itertools
import posixpath
import re
import stat as stat_module
import time

from actors.phone.files import Stat, glob_regex
from actors.phone.process import Call, options


def ls(call: Call) -> int:
    flags, words = options(call.args)
    letters = "".join(flags)
    status = 0
    for number, word in enumerate(words or ["."]):
        path = call.path(word)
        if not call.android.files.exists(path):
            status = call.error(f"ls: {word}: No such file or directory")
            continue
        if call.android.files.is_file(path) or "d" in letters:
            names = [(word, path)]
        else:
            names = [(n, posixpath.join(path, n)) for n in call.android.files.list_dir(path)]
            names = [(n, p) for n, p in names if "a" in letters or "A" in letters or n[0] != "."]
            if len(words) > 1:
                call.print(*[""] * bool(number), f"{word}:")
            if "l" in letters:
                call.print("total 0")
        for name, file in names:
            long = _long(call.android.files.stat(file)) if "l" in letters else ""
            call.print(long + name)
    return status


def _long(stat: Stat) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(stat.mtime))
    return f"{stat_module.filemode(stat.mode)} 1 root sdcard_rw {stat.size:>8} {when} "


def rm(call: Call) -> int:
    flags, words = options(call.args)
    letters = "".join(flags)
    status = 0
    for word in words:
        try:
            recursive = "r" in letters or "R" in letters
            call.android.files.remove(call.path(word), recursive=recursive)
        except FileNotFoundError as error:
            if "f" not in letters:
                status = call.error(f"rm: {word}: {error.strerror}")
        except OSError as error:
            status = call.error(f"rm: {word}: {error.strerror}")
    return status


def mkdir(call: Call) -> int:
    flags, words = options(call.args, with_value="-m")
    status = 0
    for word in words:
        try:
            call.android.files.make_dir(call.path(word), parents="-p" in flags)
        except OSError as error:
            status = call.error(f"mkdir: '{word}': {error.strerror}")
    return status


def rmdir(call: Call):
    for word in options(call.args)[1]:
        call.android.files.remove_dir(call.path(word))


def touch(call: Call):
    for word in options(call.args, with_value="-t -d")[1]:
        call.android.files.write(call.path(word), b"", append=True)


def cp(call: Call) -> int | None:
    """cp and mv: files, or whole directories with -r or -a; DIR/. means what is in it."""
    flags, words = options(call.args)
    if len(words) < 2:
        return call.error(f"{call.name}: Need 2 arguments")
    files, moves = call.android.files, call.name == "mv"
    recursive = moves or any(letter in "".join(flags) for letter in "raR")
    *sources, target = words
    for source in sources:
        start, end = call.path(source), call.path(target)
        if files.is_dir(end) and not source.endswith("/."):
            end = posixpath.join(end, posixpath.basename(start))
        if files.is_dir(start) and not recursive:
            return call.error(f"cp: Skipped dir '{source}'")
        if f"{end}/".startswith(f"{start}/"):
            return call.error(f"{call.name}: '{source}' and '{target}' overlap")
        for path in files.walk(start):
            copy = end + path[len(start) :]
            if files.is_dir(path):
                files.make_dir(copy, parents=True)
            else:
                files.write(copy, files.read(path), mtime=files.stat(path).mtime)
        if moves:
            files.remove(start, recursive=True)
    return None


def find(call: Call):
    """find DIR.. [-name PATTERN] [-maxdepth N] [-type f|d [-o -type f|d]]"""
    roots = [word for word in call.args[: _first_option(call.args)] if word] or ["."]
    tests = call.args[_first_option(call.args) :]
    values = dict(itertools.pairwise(tests))
    kinds = [after for word, after in itertools.pairwise(tests) if word == "-type"]
    depth = values.get("-maxdepth", "")
    name = re.compile(glob_regex(values["-name"])) if "-name" in values else None
    for root in roots:
        base = call.path(root)
        for path in call.android.files.walk(base):
            kind = "d" if call.android.files.is_dir(path) else "f"
            if kinds and kind not in kinds:
                continue
            if name and not name.fullmatch(posixpath.basename(path)):
                continue
            if depth.isdecimal() and path[len(base) :].count("/") > int(depth):
                continue
            call.print(root.rstrip("/") + path[len(base) :] if path != base else root)


def _first_option(words: list[str]) -> int:
    return next((i for i, word in enumerate(words) if word.startswith("-")), len(words))


def stat(call: Call):
    flags, words = options(call.args, with_value="-c")
    for word in words:
        found = call.android.files.stat(call.path(word))
        shown = flags.get("-c", "  File: %n\n  Size: %s\n Modify: %Y")
        for key, value in (("%n", word), ("%s", found.size), ("%Y", found.mtime)):
            shown = shown.replace(key, str(value))
        call.print(shown)


def digest(call: Call):
    algorithm = call.name.removesuffix("sum")
    for word in call.args:
        data = call.android.files.read(call.path(word))
        call.print(f"{hashlib.new(algorithm, data).hexdigest()}  {word}")


def basename(call: Call):
    call.print(posixpath.basename(call.args[0].rstrip("/")) if call.args else "")


def dirname(call: Call):
    call.print(posixpath.dirname(call.args[0].rstrip("/")) or "." if call.args else "")


def realpath(call: Call):
    call.print(*map(call.path, call.args))


def ignored(call: Call):
    """chmod, chown, restorecon, sync: there are no owners and no modes to change."""


def df(call: Call):
    call.print(
        "Filesystem     1K-blocks    Used Available Use% Mounted on",
        "/dev/fuse         262144       0    262144   0% /storage/emulated",
    )


COMMANDS = {
    "basename": basename,
    "chmod": ignored,
    "chown": ignored,
    "cp": cp,
    "df": df,
    "dirname": dirname,
    "find": find,
    "ls": ls,
    "md5sum": digest,
    "mkdir": mkdir,
    "mv": cp,
    "readlink": realpath,
    "realpath": realpath,
    "restorecon": ignored,
    "rm": rm,
    "rmdir": rmdir,
    "sha1sum": digest,
    "sha256sum": digest,
    "stat": stat,
    "sync": ignored,
    "touch": touch,
}
