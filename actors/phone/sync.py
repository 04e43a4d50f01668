"""adb's file transfer: STAT, LIST, RECV and SEND, in both of their versions."""

from __future__ import annotations

import errno
import posixpath
import struct

from actors.phone.adbd import Stream
from actors.phone.android import Android
from actors.phone.files import Files, Stat

_REQUEST = struct.Struct("<4sI")
_STAT_V1 = struct.Struct("<4sIII")
_STAT_V2 = struct.Struct("<4sIQQIIIIQqqq")
_ENTRY_V1 = struct.Struct("<4sIIII")
_ENTRY_V2 = struct.Struct("<4sIQQIIIIQqqqI")
_MAX_PATH = 1024
_CHUNK = 64 << 10


async def serve(android: Android, stream: Stream):
    """Answers requests until QUIT, or until one that leaves the stream unreadable."""
    while True:
        request, size = _REQUEST.unpack(await stream.read(_REQUEST.size))
        if request == b"QUIT":
            return
        if size > _MAX_PATH:
            await _fail(stream, "path too long")
            return
        word = (await stream.read(size)).decode(errors="surrogateescape")
        if request in (b"STAT", b"STA2", b"LST2"):
            await stream.write(_stat(android.files, request, Files.normal(word)))
        elif request in (b"LIST", b"LIS2"):
            await stream.write(_list(android.files, request, Files.normal(word)))
        elif request in (b"RECV", b"RCV2"):
            if request == b"RCV2":
                await stream.read(_REQUEST.size)  # the id again, and flags: no compression
            await _send_file(android.files, stream, Files.normal(word))
        elif request in (b"SEND", b"SND2"):
            if request == b"SND2":
                await stream.read(12)  # the id again, mode and flags
            path = word if request == b"SND2" else word.rpartition(",")[0]
            if not await _receive_file(android.files, stream, Files.normal(path)):
                return
        else:
            await _fail(stream, f"unknown request {request!r}")
            return


def _find(files: Files, path: str) -> Stat | None:
    return files.stat(path) if files.exists(path) else None


def _stat(files: Files, request: bytes, path: str) -> bytes:
    found = _find(files, path)
    if request == b"STAT":
        return _STAT_V1.pack(request, *(found or (0, 0, 0)))
    if found is None:
        return _STAT_V2.pack(request, errno.ENOENT, *(0,) * 10)
    return _STAT_V2.pack(request, *_fields_v2(found))


def _fields_v2(found: Stat) -> tuple[int, ...]:
    """error, dev, ino, mode, nlink, uid, gid, size, atime, mtime, ctime"""
    return (0, 1, 1, found.mode, 1, 0, 0, found.size, found.mtime, found.mtime, found.mtime)


def _list(files: Files, request: bytes, path: str) -> bytes:
    parts = []
    for name in files.list_dir(path) if files.is_dir(path) else ():
        found = files.stat(posixpath.join(path, name))
        raw = name.encode(errors="surrogateescape")
        if request == b"LIST":
            parts += [_ENTRY_V1.pack(b"DENT", *found, len(raw)), raw]
        else:
            parts += [_ENTRY_V2.pack(b"DNT2", *_fields_v2(found), len(raw)), raw]
    end = _ENTRY_V1 if request == b"LIST" else _ENTRY_V2
    zeros = (0,) * (4 if request == b"LIST" else 12)
    return b"".join([*parts, end.pack(b"DONE", *zeros)])


async def _send_file(files: Files, stream: Stream, path: str):
    try:
        data = memoryview(files.read(path))
    except OSError as error:
        await _fail(stream, str(error.strerror))
        return
    parts: list[bytes | memoryview] = []
    for start in range(0, len(data), _CHUNK):
        chunk = data[start : start + _CHUNK]
        parts += [_REQUEST.pack(b"DATA", len(chunk)), chunk]
    await stream.write(b"".join([*parts, _REQUEST.pack(b"DONE", 0)]))


async def _receive_file(files: Files, stream: Stream, path: str) -> bool:
    """Takes DATA up to DONE; False if the stream cannot be read any further."""
    data = bytearray()
    failure = "" if files.is_dir(posixpath.dirname(path)) else _make_parents(files, path)
    while True:
        kind, size = _REQUEST.unpack(await stream.read(_REQUEST.size))
        if kind == b"DONE":
            break
        if kind != b"DATA" or size > _CHUNK:
            await _fail(stream, "bad data message")
            return False
        data += await stream.read(size)
        if files.free_bytes() < len(data):
            failure = failure or "No space left on device"
            data.clear()
    if not failure:
        try:
            files.write(path, bytes(data), mtime=size)
        except OSError as error:
            failure = str(error.strerror)
    if failure:
        await _fail(stream, failure)
    else:
        await stream.write(_REQUEST.pack(b"OKAY", 0))
    return True


def _make_parents(files: Files, path: str) -> str:
    """Makes the directories above a file, as adbd does; returns what went wrong, or ""."""
    try:
        files.make_dir(posixpath.dirname(path), parents=True)
    except OSError as error:
        return str(error.strerror)
    return ""


async def _fail(stream: Stream, message: str):
    raw = message.encode()
    await stream.write(_REQUEST.pack(b"FAIL", len(raw)) + raw)
