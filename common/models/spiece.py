"""SentencePiece's model file as a tokenizer.json: what transformers makes of T5's spiece.model.

The file is a protocol buffer of which three fields matter, and so it is read here: neither
transformers nor sentencepiece is needed, and actors never see it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from common.errors import ConfigError
from common.models.text import SPECIAL_TOKENS
from common.types import EOS_ID

SENTINELS = 100  # <extra_id_0> and so on, with which T5 was trained; the file has none
UNKNOWN, UNKNOWN_ID = "<unk>", 2
_BLANK = "▁"
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3  # fields of ModelProto in sentencepiece_model.proto
_PIECE, _SCORE = 1, 2  # fields of a piece
_MODEL_TYPE, _UNIGRAM = 3, 1  # field of the trainer's specification, and its default
_CHARACTERS = 2  # field of the normalizer's: a compiled map of characters (NFKC)


def to_json(content: bytes, sentinels: int = SENTINELS) -> str:
    """Returns tokenizer.json for the content of a spiece.model.

    Args:
      content: Of the file.
      sentinels: How many <extra_id_N> follow the pieces, the last first.

    Raises:
      ConfigError: It is no such file, or not of the kind of T5's.
    """
    pieces, characters = _read(content)
    pieces += [(f"<extra_id_{i}>", 0.0) for i in reversed(range(sentinels))]
    specials = [*SPECIAL_TOKENS, UNKNOWN]
    if [piece for piece, _ in pieces[: len(specials)]] != specials:
        raise ConfigError(f"Its first pieces are {pieces[:3]}; in T5 they are {specials}.")
    backend = tokenizers.Tokenizer(models.Unigram(pieces, UNKNOWN_ID, byte_fallback=False))
    if characters:
        backend.normalizer = normalizers.Precompiled(characters)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(_BLANK, "always", split=True)]
    )
    backend.decoder = decoders.Metaspace(_BLANK, "always", split=True)
    end = SPECIAL_TOKENS[EOS_ID]
    backend.post_processor = processors.TemplateProcessing(
        single=["$A", end], pair=["$A", end, "$B", end], special_tokens=[(end, EOS_ID)]
    )
    backend.add_special_tokens([*specials, *(p for p, _ in pieces if p.startswith("<extra_id_"))])
    return backend.to_str()


def _read(content: bytes) -> tuple[list[tuple[str, float]], bytes]:
    """Returns the pieces with their scores, and the normalizer's map."""
    pieces: list[tuple[str, float]] = []
    characters, kind = b"", _UNIGRAM
    try:
        for field, value in _fields(content):
            if field == _PIECES:
                piece = dict(_fields(value))
                pieces.append((piece[_PIECE].decode(), struct.unpack("<f", piece[_SCORE])[0]))
            elif field == _TRAINER:
                kind = dict(_fields(value)).get(_MODEL_TYPE, kind)
            elif field == _NORMALIZER:
                characters = dict(_fields(value)).get(_CHARACTERS, characters)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
        raise ConfigError("This is no SentencePiece model.") from error
    if kind != _UNIGRAM:
        raise ConfigError("This SentencePiece model is no unigram model, as T5's is.")
    return pieces, characters


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yields the number and value of each field of a protocol buffer: an integer, or bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        size, at = _varint(message, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        if at + size > len(message):
            raise IndexError("a field is cut off")
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Returns the integer at `at`, seven bits a byte from the lowest, and where it ends."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
