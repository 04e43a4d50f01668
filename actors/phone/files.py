"""The phone's file system, in memory: what adb pushes, pulls, lists and removes."""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat
from typing import NamedTuple

CAPACITY_BYTES = 256 << 20
_ROOTS = (
    "/data/local/tmp",
    "/data/data",
    "/sdcard/Download",
    "/sdcard/Pictures",
    "/system",
    "/dev",
)
_GLOB = re.compile(r"\\(.)|([*?])|\[([!^]?[^\]/]+)\]|(.)", re.DOTALL)
_SDCARD = re.compile(r"/(?:storage/emulated/0|storage/self/primary|mnt/sdcard)(?=/|$)")


class Stat(NamedTuple):
    """What `stat` says about a path."""

    mode: int
    size: int  # bytes
    mtime: int  # seconds


class Files:
    """Files and directories by absolute path. Failures are OSErrors with the usual `strerror`."""

    def __init__(self, now: int):
        self._now = now
        self._files: dict[str, bytes] = {}
        self._dirs: dict[str, int] = {"/": now}  # path to mtime
        self._mtimes: dict[str, int] = {}
        self._size_bytes = 0
        for root in _ROOTS:
            self.make_dir(root, parents=True)
        self.write("/dev/null", b"")

    @staticmethod
    def normal(path: str, cwd: str = "/") -> str:
        """Returns the absolute path, with the aliases of /sdcard resolved."""
        path = "/" + posixpath.normpath(posixpath.join(cwd, path)).lstrip("/")
        return _SDCARD.sub("/sdcard", path, count=1)

    def is_dir(self, path: str) -> bool:
        return path in self._dirs

    def is_file(self, path: str) -> bool:
        return path in self._files

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._dirs

    def stat(self, path: str) -> Stat:
        if path in self._files:
            mtime = self._mtimes[path]
            return Stat(stat.S_IFREG | 0o660, len(self._files[path]), mtime)
        if path in self._dirs:
            return Stat(stat.S_IFDIR | 0o771, 4096, self._dirs[path])
        raise _error(errno.ENOENT, path)

    def read(self, path: str) -> bytes:
        if path in self._dirs:
            raise _error(errno.EISDIR, path)
        if path not in self._files:
            raise _error(errno.ENOENT, path)
        return self._files[path]

    def free_bytes(self) -> int:
        return CAPACITY_BYTES - self._size_bytes

    def write(self, path: str, data: bytes, *, append: bool = False, mtime: int | None = None):
        """Writes a file whose directory exists; /dev/null swallows everything."""
        if path in self._dirs:
            raise _error(errno.EISDIR, path)
        if posixpath.dirname(path) not in self._dirs:
            raise _error(errno.ENOENT, path)
        if path == "/dev/null":
            data = b""
        old = self._files.get(path, b"")
        data = old + data if append else bytes(data)
        if self._size_bytes + len(data) - len(old) > CAPACITY_BYTES:
            raise _error(errno.ENOSPC, path)
        self._size_bytes += len(data) - len(old)
        self._files[path] = data
        self._mtimes[path] = self._now if mtime is None else mtime

    def make_dir(self, path: str, *, parents: bool = False):
        parent = posixpath.dirname(path)
        if self.exists(path):
            if parents and self.is_dir(path):
                return
            raise _error(errno.EEXIST, path)
        if self.is_file(parent):
            raise _error(errno.ENOTDIR, path)
        if not self.is_dir(parent):
            if not parents:
                raise _error(errno.ENOENT, path)
            self.make_dir(parent, parents=True)
        self._dirs[path] = self._now

    def list_dir(self, path: str) -> list[str]:
        """Returns the sorted names in a directory."""
        if path not in self._dirs:
            raise _error(errno.ENOTDIR if path in self._files else errno.ENOENT, path)
        return sorted(
            posixpath.basename(p) for p in self._below(path) if p.count("/") == _depth(path)
        )

    def walk(self, path: str) -> list[str]:
        """Returns a path and everything below it, sorted."""
        self.stat(path)
        return [path, *sorted(self._below(path))]

    def remove(self, path: str, *, recursive: bool = False):
        if path in self._files:
            self._size_bytes -= len(self._files.pop(path))
            del self._mtimes[path]
        elif path not in self._dirs:
            raise _error(errno.ENOENT, path)
        elif not recursive:
            raise _error(errno.EISDIR, path)
        else:
            for child in self._below(path):
                if child in self._files:
                    self.remove(child)
                else:
                    del self._dirs[child]
            if path != "/":
                del self._dirs[path]

    def remove_dir(self, path: str):
        if self.list_dir(path):
            raise _error(errno.ENOTEMPTY, path)
        self.remove(path, recursive=True)

    def glob(self, pattern: str) -> list[str]:
        """Returns the sorted absolute paths that match a pattern; see `glob_regex`."""
        regex = re.compile("/".join(map(glob_regex, self.normal(pattern).split("/"))))
        return sorted(
            path for path in (*self._files, *self._dirs) if path != "/" and regex.fullmatch(path)
        )

    def _below(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return [p for p in (*self._files, *self._dirs) if p.startswith(prefix) and p != path]


def _depth(path: str) -> int:
    return 1 if path == "/" else path.count("/") + 1


def glob_regex(pattern: str) -> str:
    r"""Returns the regex of a shell pattern: * ? [..] and \ before what is meant literally.

    Wildcards do not cross a slash, and a leading dot is only matched by a dot.
    """
    parts = ["(?!\\.)"] if pattern[:1] in ("*", "?", "[") else []
    for escaped, wildcard, members, literal in _GLOB.findall(pattern):
        if wildcard:
            parts.append("[^/]*" if wildcard == "*" else "[^/]")
        elif members:
            parts.append(_members(members))
        else:
            parts.append(re.escape(escaped or literal))
    return "".join(parts)


def _members(members: str) -> str:
    """Returns the regex of a [..]; one that makes no sense, such as [z-a], means itself."""
    negation = "^" if members[0] in "!^" else ""
    inner = re.sub(r"([\\\[&~|])", r"\\\1", members[len(negation) :])
    regex = f"[{negation}{inner}]"
    try:
        re.compile(regex)
    except re.error:
        return re.escape(f"[{members}]")
    return regex


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
