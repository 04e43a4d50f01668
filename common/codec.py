"""Episode <-> message.

The header holds the ids and the texts about the episode; the body holds one column after the
other, stacked over the T steps, little-endian, each at a multiple of 64 bytes:

  the ten arrays of `types.Trajectory`, then three ragged columns (prompts, actions, screens), each
  as `<name>` uint8 [bytes of all steps] and `<name>.ends` int64 [rows], where row i is
  data[ends[i - 1]:ends[i]].

The header's "columns" lists [name, dtype, shape, offset, nbytes]. Names, dtypes and shapes follow
from T and the learner's `EpisodeSpec`, so a message either has exactly that table or is refused.
Decoded arrays are read-only views of the body: they keep it alive.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from common import errors, messages
from common.types import Ending, Episode, Trajectory

EPISODE = "EPISODE"
ALIGNMENT = 64
MAX_STEPS = 256
MAX_VERDICT_DEPTH = 4
SOURCES = ("policy", "expert", "recorded")
# Rounding may lift the logarithm of a probability of 1 a little above 0.
LOG_PROB_SLACK = 1e-3
LARGEST_FEATURE = 65504.0  # of float16
RAGGED = ("prompts", "actions", "screens")
IMAGE_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF")  # PNG, JPEG, WebP
SHORT_TEXTS = ("actor", "boot", "source", "task_id", "template", "family", "suite")
TEXTS = ("goal", "cause")


class EpisodeSpec(NamedTuple):
    """The sizes that every episode of a run has in common."""

    prompt_length: int
    action_length: int
    image_tokens: int
    image_dim: int
    vocab_size: int
    features_dtype: str = "uint8"  # or float32, float16

    def columns(self, steps: int) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Returns dtype and shape of each array of a trajectory of that many steps."""
        return {
            "prompt_ids": ("<i4", (steps, self.prompt_length)),
            "features": (
                np.dtype(self.features_dtype).newbyteorder("<").str,
                (steps, self.image_tokens, self.image_dim),
            ),
            "action_ids": ("<i4", (steps, self.action_length)),
            "behaviour_log_probs": ("<f4", (steps, self.action_length)),
            "reward": ("<f4", (steps,)),
            "discount": ("<f4", (steps,)),
            "invalid": ("|u1", (steps,)),
            "repeats": ("|u1", (steps,)),
            "mask": ("|u1", (steps,)),
            "version": ("<i8", (steps,)),
        }


def aligned(offset: int) -> int:
    """Returns the next multiple of the alignment."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def encode_episode(episode: Episode, **more: Any) -> list[bytes]:
    """Returns the two frames of an episode; `more` are header fields that `decode_episode` skips.

    Raises:
      WireError: TOO_LARGE if it is over a cap, BAD_SCHEMA for an array of another dtype.
    """
    if not 1 <= len(episode) <= MAX_STEPS:
        raise errors.WireError("TOO_LARGE", f"{len(episode)} steps, not 1 to {MAX_STEPS}.")
    columns = dict(zip(Trajectory._fields, episode.trajectory, strict=True))
    for name in RAGGED:
        columns |= _join(name, getattr(episode, name))
    table, parts, offset = [], list[bytes | memoryview](), 0
    for name, array in columns.items():
        array = np.ascontiguousarray(array)
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        padding = aligned(offset) - offset
        offset += padding
        table.append([name, array.dtype.str, list(array.shape), offset, array.nbytes])
        parts += [bytes(padding), array.data]
        offset += array.nbytes
    body = b"".join(parts)
    fields: dict[str, Any] = {name: getattr(episode, name) for name in SHORT_TEXTS + TEXTS}
    fields |= {
        "seq": int(episode.seq),
        "seed": int(episode.seed),
        "lineage": int(episode.lineage),
        "ending": episode.ending.value,
        "verdict": episode.verdict,
        "temperature": float(episode.temperature),
        "duration_s": float(episode.duration_s),
        "crc32": zlib.crc32(body),
        "columns": table,
    }
    return messages.pack(EPISODE, fields | more, body)


def decode_episode(header: messages.Header, body: bytes, spec: EpisodeSpec) -> Episode:
    """Returns the episode of a message, checked cheapest first.

    Raises:
      WireError: Whatever is wrong with it; see `messages` for the codes.
    """
    texts: dict[str, Any] = {name: header.text(name, 256) for name in SHORT_TEXTS}
    texts |= {name: header.text(name) for name in TEXTS}
    if not texts["actor"] or not texts["boot"]:
        raise errors.WireError("BAD_VALUE", "actor or boot is empty.")
    if texts["source"] not in SOURCES:
        raise errors.WireError("BAD_VALUE", f"source is {texts['source']!r}, not in {SOURCES}.")
    ending = header.text("ending", 32)
    if ending not in tuple(Ending):
        raise errors.WireError("BAD_VALUE", f"ending is {ending!r}, not in {tuple(Ending)}.")
    numbers: dict[str, Any] = {
        "seq": header.integer("seq"),
        "seed": header.integer("seed"),
        "lineage": header.integer("lineage"),
        "temperature": header.number("temperature"),
        "duration_s": header.number("duration_s"),
    }
    verdict = header.get("verdict", dict)
    _check_plain("verdict", verdict, MAX_VERDICT_DEPTH)
    arrays = _columns(header, body, spec)
    if header.integer("crc32") != zlib.crc32(body):
        raise errors.WireError("BAD_CHECKSUM", "The body is not the one that was sent.")
    trajectory = Trajectory(*(arrays[name] for name in Trajectory._fields))
    _check_values(trajectory, spec, texts["source"], Ending(ending))
    prompts, actions, screens = (
        _split(name, arrays[name], arrays[f"{name}.ends"]) for name in RAGGED
    )
    if not all(screen.startswith(IMAGE_STARTS) for screen in screens):
        raise errors.WireError("BAD_VALUE", "A screen is neither PNG, JPEG nor WebP.")
    return Episode(
        trajectory=trajectory,
        ending=Ending(ending),
        verdict=verdict,
        prompts=_decode("prompts", prompts),
        actions=_decode("actions", actions),
        screens=screens,
        **texts,
        **numbers,
    )


def _columns(header: messages.Header, body: bytes, spec: EpisodeSpec) -> dict[str, np.ndarray]:
    """Returns the columns as views of the body, if the table is the one that the spec gives."""
    table = header.get("columns", list)
    try:
        claimed = {name: (dtype, tuple(shape)) for name, dtype, shape, _, _ in table}
        places = {name: (offset, nbytes) for name, _, _, offset, nbytes in table}
        (steps,) = claimed["reward"][1]
        expected = spec.columns(steps)
        for name in RAGGED:
            # A ragged column has as many bytes as it has; and one row a step, or no screens at all.
            (size,), (rows,) = claimed[name][1], claimed[_ends(name)][1]
            expected[name] = ("|u1", (size,))
            expected[_ends(name)] = ("<i8", (0 if name == "screens" and rows == 0 else steps,))
    except (KeyError, TypeError, ValueError) as error:
        raise errors.WireError("BAD_SCHEMA", "The table of columns is malformed.") from error
    if len(table) != len(expected) or list(claimed.items()) != list(expected.items()):
        wrong = next((name for name in expected if claimed.get(name) != expected[name]), "order")
        raise errors.WireError(
            "BAD_SCHEMA",
            f"Columns are not those of this run: {wrong} is {claimed.get(wrong)}, not "
            f"{expected.get(wrong)}.",
        )
    if type(steps) is not int or not 1 <= steps <= MAX_STEPS:
        raise errors.WireError("TOO_LARGE", f"An episode has 1 to {MAX_STEPS} steps, not {steps}.")
    arrays, end = {}, 0
    for name, (dtype, shape) in expected.items():
        if not all(type(size) is int and size >= 0 for size in shape):
            raise errors.WireError("BAD_SCHEMA", f"{name} has the shape {shape}.")
        offset, count = aligned(end), math.prod(shape)
        end = offset + count * np.dtype(dtype).itemsize
        if places[name] != (offset, end - offset) or end > len(body):
            raise errors.WireError("BAD_SCHEMA", f"{name} is not where it has to be in the body.")
        arrays[name] = np.frombuffer(body, dtype, count, offset).reshape(shape)
    if end != len(body):
        raise errors.WireError("BAD_SCHEMA", "The body goes on after the last column.")
    return arrays


def _check_values(t: Trajectory, spec: EpisodeSpec, source: str, ending: Ending) -> None:
    """Raises BAD_VALUE if an array holds what no actor can have meant."""
    for name in ("reward", "discount", "behaviour_log_probs"):
        if not np.isfinite(getattr(t, name)).all():
            raise errors.WireError("BAD_VALUE", f"{name} is not finite.")
    if not (np.abs(t.features) <= LARGEST_FEATURE).all():  # NaN is not, either
        raise errors.WireError("BAD_VALUE", f"A feature is not within +-{LARGEST_FEATURE:.0f}.")
    if t.discount.min() < 0 or t.discount.max() > 1:
        raise errors.WireError("BAD_VALUE", "A discount is outside [0, 1].")
    goes_on = ending is Ending.TRUNCATED
    if not t.discount[:-1].all() or bool(t.discount[-1]) != goes_on:
        raise errors.WireError(
            "BAD_VALUE", "The discount is 0 at the last step, and there alone, unless truncated."
        )
    if t.invalid.max() > 1 or t.mask.max() > 1:
        raise errors.WireError("BAD_VALUE", "invalid or mask is neither 0 nor 1.")
    if not t.mask[:-1].all() or bool(t.mask[-1]) == goes_on:
        raise errors.WireError("BAD_VALUE", "The last row is masked if truncated, and no other.")
    if t.version.min() < -1 or ((t.version == -1) != (source != "policy")).any():
        raise errors.WireError("BAD_VALUE", "version is 0 or more for the policy and -1 else.")
    for name in ("prompt_ids", "action_ids"):
        ids = getattr(t, name)
        if ids.min() < 0 or ids.max() >= spec.vocab_size:
            raise errors.WireError("BAD_VALUE", f"{name} is outside [0, {spec.vocab_size}).")
    if t.behaviour_log_probs.max() > LOG_PROB_SLACK:
        raise errors.WireError("BAD_VALUE", "A behaviour log-probability is above 0.")


def _check_plain(name: str, value: Any, depth: int) -> None:
    """Raises BAD_SCHEMA unless the value is made of what JSON has, finite and not too deep."""
    if depth < 0:
        raise errors.WireError("BAD_SCHEMA", f"{name} is nested too deeply.")
    if type(value) is dict:
        for inner in value.values():
            _check_plain(name, inner, depth - 1)
    elif type(value) is list:
        for inner in value:
            _check_plain(name, inner, depth - 1)
    elif type(value) is float:
        if not math.isfinite(value):
            raise errors.WireError("BAD_VALUE", f"{name} holds a number that is not finite.")
    elif value is not None and type(value) not in (str, int, bool):
        raise errors.WireError("BAD_SCHEMA", f"{name} holds a {type(value).__name__}.")


def _ends(name: str) -> str:
    return f"{name}.ends"


def _join(name: str, rows: Sequence[str | bytes]) -> dict[str, np.ndarray]:
    """Returns a ragged column: the bytes of all rows, and where each row ends."""
    try:
        raw = [row.encode() if isinstance(row, str) else row for row in rows]
    except UnicodeEncodeError as error:
        raise errors.WireError("BAD_VALUE", f"{name} is not valid text.") from error
    ends = np.cumsum([len(row) for row in raw], dtype=np.int64)
    return {name: np.frombuffer(b"".join(raw), np.uint8), _ends(name): ends}


def _split(name: str, data: np.ndarray, ends: np.ndarray) -> tuple[bytes, ...]:
    """Returns the rows of a ragged column; raises BAD_VALUE unless they tile it in order."""
    starts = np.concatenate([[0], ends[:-1]])
    if (ends < starts).any() or (ends[-1] if len(ends) else 0) != len(data):
        raise errors.WireError("BAD_VALUE", f"The rows of {name} don't tile it.")
    return tuple(data[a:b].tobytes() for a, b in zip(starts[: len(ends)], ends, strict=True))


def _decode(name: str, rows: tuple[bytes, ...]) -> tuple[str, ...]:
    try:
        return tuple(row.decode() for row in rows)
    except UnicodeDecodeError as error:
        raise errors.WireError("BAD_VALUE", f"{name} is not valid UTF-8.") from error
