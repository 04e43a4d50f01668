"""Recorded episodes on disk: a folder that is written by appending and read as a stream.

    dataset.json              {"format": "distrl-episodes", "version": 1, "spec": {...}}
    tokenizer.json            what turned the texts into the ids
    episodes-00000.bin, ...   records, one after the other
    images/ab/ab12...png      screens, each named by the SHA-256 of its bytes

A record is an episode's message as it is on the wire (`common.codec`, `common.record`); its header
names the screens, which the message itself leaves out. docs/data.md says it in full.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import logging
import os
import pathlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple, Self

from common import errors, messages, record
from common.codec import EPISODE, MAX_STEPS, EpisodeSpec, decode_episode, encode_episode
from common.errors import ConfigError
from common.types import Episode

logger = logging.getLogger(__name__)

FORMAT, VERSION = "distrl-episodes", 1
SEGMENT_BYTES = 256 * 1024 * 1024
SUFFIXES = {b"\x89PNG": ".png", b"\xff\xd8\xff": ".jpg", b"RIFF": ".webp"}


class Recorded(NamedTuple):
    """An episode without its screens, and their names: [T] of them or none."""

    episode: Episode
    images: tuple[str, ...]


class Writer:
    """Appends episodes to a folder, new or of the same sizes and tokenizer.

    Every writer makes files of its own, so several may fill one folder, and what a killed one left
    half written stays the end of its file.
    """

    def __init__(self, folder: pathlib.Path, spec: EpisodeSpec, tokenizer: str):
        """Makes the folder, or checks that what is there goes with it.

        Args:
          folder: Where.
          spec: Sizes of the episodes' arrays.
          tokenizer: The text of a tokenizer.json.

        Raises:
          ConfigError: The folder holds something else, or can't be written.
        """
        self._folder = folder
        self._stream: BinaryIO | None = None
        self.count = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / "dataset.json").exists():
                Dataset(folder).require(spec, tokenizer)
            elif any(folder.iterdir()):
                raise ConfigError(f"{folder} holds other files; name a new or empty folder.")
            else:
                (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
                about = {"format": FORMAT, "version": VERSION, "spec": spec._asdict()}
                (folder / "dataset.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{folder} can't be written: {error}.") from error

    def write(self, episode: Episode) -> None:
        """Appends an episode; its screens go to files of their own, before it.

        Raises:
          ConfigError: The folder can't be written, for example because the disk is full.
        """
        try:
            images = [self._add_image(screen) for screen in episode.screens]
            frames = encode_episode(dataclasses.replace(episode, screens=()), images=images)
            stream = self._segment()
            stream.write(record.pack(self.count, frames))
            stream.flush()
        except OSError as error:
            raise ConfigError(f"{self._folder} can't be written: {error}.") from error
        self.count += 1

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add_image(self, screen: bytes) -> str:
        """Writes a screen unless it is there; returns its name."""
        suffix = next((s for start, s in SUFFIXES.items() if screen.startswith(start)), "")
        if not suffix:
            raise ValueError("a screen is neither PNG, JPEG nor WebP")
        name = hashlib.sha256(screen).hexdigest() + suffix
        path = image_path(self._folder, name)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f"{name}.{os.getpid()}.part")
            part.write_bytes(screen)
            part.replace(path)
        return name

    def _segment(self) -> BinaryIO:
        """Returns the file to append to, a new one when the last is full."""
        if self._stream is not None and self._stream.tell() < SEGMENT_BYTES:
            return self._stream
        self.close()
        numbers = (path.stem.partition("-")[2] for path in self._folder.glob("episodes-*.bin"))
        number = max((int(text) for text in numbers if text.isdecimal()), default=-1) + 1
        while True:
            try:
                self._stream = (self._folder / f"episodes-{number:05d}.bin").open("xb")
                return self._stream
            except FileExistsError:
                number += 1  # another writer was faster


class Dataset:
    """A folder of recorded episodes, read one at a time, oldest file first.

    Attributes:
      spec: Sizes of the episodes' arrays.
      tokenizer: The text of the tokenizer.json.
    """

    def __init__(self, folder: pathlib.Path):
        """Reads what the folder says of itself.

        Raises:
          ConfigError: It is no such folder, or of a format that this program doesn't read.
        """
        self.folder = folder
        try:
            about = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
            self.tokenizer = (folder / "tokenizer.json").read_text(encoding="utf-8")
            found = about["format"], about["version"]
            spec = about["spec"] if found == (FORMAT, VERSION) else {}
        except FileNotFoundError as error:
            raise ConfigError(
                f"{folder} is no folder of recorded episodes: {error.filename} is missing. "
                "launch/data.py makes one."
            ) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{folder / 'dataset.json'} can't be read: {error!r}.") from error
        if found != (FORMAT, VERSION):
            raise ConfigError(
                f"{folder} is of the format {found[0]!r}, version {found[1]!r}; this program reads "
                f"{FORMAT!r}, version {VERSION}."
            )
        self.spec = _spec(folder, spec)

    def require(self, spec: EpisodeSpec, tokenizer: str) -> None:
        """Raises ConfigError unless the episodes are of these sizes and this tokenizer's."""
        for name, mine, theirs in zip(spec._fields, self.spec, spec, strict=True):
            if mine != theirs:
                raise ConfigError(
                    f"The episodes in {self.folder} have {name} {mine}, not {theirs}: they were "
                    "recorded for another model."
                )
        if self.tokenizer != tokenizer:
            raise ConfigError(
                f"The episodes in {self.folder} were made with another tokenizer: its ids stand "
                "for other texts. Start from the checkpoint that they were recorded for."
            )

    def __iter__(self) -> Iterator[Recorded]:
        """Yields the episodes; what a killed writer left at the end of its file is left out.

        Raises:
          ConfigError: An episode is damaged; it says which.
        """
        for path in self.segments():
            try:
                with path.open("rb") as stream:
                    yield from read_episodes(stream, self.spec)
            except EOFError as error:
                logger.warning("%s: %s; what is before it is read.", path, error)
            except errors.WireError as error:
                raise ConfigError(f"{path}: {error}") from error
            except OSError as error:
                raise ConfigError(f"{path} can't be read: {error.strerror}.") from error

    def problems(self) -> Iterator[str]:
        """Reads all episodes and screens; yields a sentence about each thing that is wrong."""
        checked: set[str] = set()
        for path in self.segments():
            try:
                with path.open("rb") as stream:
                    for _, images in read_episodes(stream, self.spec):
                        new = sorted(set(images) - checked)
                        checked.update(new)
                        yield from (f"{path}: {wrong}" for wrong in map(self._check, new) if wrong)
            except (EOFError, errors.WireError, OSError) as error:
                yield f"{path}: {error}"

    def segments(self) -> list[pathlib.Path]:
        return sorted(self.folder.glob("episodes-*.bin"))

    def screens(self, recorded: Recorded) -> tuple[bytes, ...]:
        """Returns the encoded screens of an episode; ConfigError if one is missing."""
        try:
            return tuple(image_path(self.folder, name).read_bytes() for name in recorded.images)
        except OSError as error:
            raise ConfigError(f"A screen can't be read: {error}.") from error

    def _check(self, name: str) -> str:
        try:
            data = image_path(self.folder, name).read_bytes()
        except OSError as error:
            return f"the screen {name} can't be read: {error.strerror}."
        right = hashlib.sha256(data).hexdigest() == name.split(".")[0]
        return "" if right else f"the screen {name} is not the one that was recorded."


def read_episodes(stream: BinaryIO, spec: EpisodeSpec) -> Iterator[Recorded]:
    """Yields the episodes of a stream, which need not be seekable.

    Raises:
      EOFError: The last record is not whole.
      WireError: A record before the last is damaged, or one is not of these sizes.
    """
    for number in itertools.count():
        try:
            found = record.read(stream)
        except record.DamagedError as error:
            if not stream.read(1):
                raise EOFError(f"its last record, number {number}, is not whole") from error
            raise errors.WireError("BAD_CHECKSUM", f"Record {number} is damaged.") from error
        if found is None:
            return
        try:
            yield _decode(found.frames, spec)
        except errors.WireError as error:
            raise errors.WireError(error.code, f"Record {number}: {error.message}") from error


def image_path(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Returns where a screen of that name is."""
    return folder / "images" / name[:2] / name


def _decode(frames: list[bytes], spec: EpisodeSpec) -> Recorded:
    header, body = messages.unpack(frames)
    if header.type != EPISODE:
        raise errors.WireError("BAD_SCHEMA", f"It is a {header.type}, no {EPISODE}.")
    episode = decode_episode(header, body, spec)
    images = header.get("images", list)
    if len(images) not in (0, len(episode)) or len(images) > MAX_STEPS:
        raise errors.WireError("BAD_SCHEMA", f"It has {len(images)} screens.")
    for name in images:
        stem, dot, suffix = str(name).partition(".")
        plain = len(stem) == 64 and not set(stem) - set("0123456789abcdef")
        if not plain or dot + suffix not in SUFFIXES.values():
            raise errors.WireError("BAD_VALUE", f"{name!r} is no screen's name.")
    return Recorded(episode, tuple(images))


def _spec(folder: pathlib.Path, values: Any) -> EpisodeSpec:
    kinds = {name: str if name == "features_dtype" else int for name in EpisodeSpec._fields}
    if not isinstance(values, dict) or {k: type(v) for k, v in values.items()} != kinds:
        raise ConfigError(f"{folder / 'dataset.json'}: 'spec' must hold {', '.join(kinds)}.")
    if values["features_dtype"] not in ("uint8", "float16", "float32"):
        raise ConfigError(f"{folder}: features can't be {values['features_dtype']!r}.")
    return EpisodeSpec(**values)
