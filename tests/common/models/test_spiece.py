import struct

import pytest

from common.errors import ConfigError
from common.models import spiece
from common.models.text import Tokenizer

PIECES = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -3.0), ("▁tap", -2.5), ("s", -2.0)]


def _varint(value):
    head, rest = value & 127, value >> 7
    return bytes([head | 128]) + _varint(rest) if rest else bytes([head])


def _field(number, value):
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    if isinstance(value, float):
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _model(pieces, trainer=b"", normalizer=b""):
    """Encodes sentencepiece_model.proto: pieces (text, score, kind), and two specifications."""
    content = b"".join(
        _field(1, _field(1, text.encode()) + _field(2, score) + _field(3, 1))
        for text, score in pieces
    )
    return content + _field(2, trainer) + _field(3, normalizer)


def test_pieces_become_tokens_and_the_sentinels_follow():
    trainer = _field(1, b"corpus.txt") + _field(3, 1) + _field(4, 2**40) + _field(10, 0.5)
    tokenizer = Tokenizer.from_json(spiece.to_json(_model(PIECES, trainer), sentinels=2))
    assert tokenizer.vocab_size == len(PIECES) + 2
    assert tokenizer.encode_prompt("taps  tap\n{", 9).tolist() == [4, 5, 4, 3, 2, 1, 0, 0, 0]
    assert tokenizer.decode([4, 5, 6, 7]) == "taps<extra_id_1><extra_id_0>"


def test_what_is_no_unigram_model_of_t5_is_refused():
    whole = _model(PIECES)
    cut = _model(PIECES, normalizer=_field(2, b"a map of characters"))[:-5]
    for content in (whole[:-7], cut, b"nonsense", b"\x0b", whole + b"\xff"):
        with pytest.raises(ConfigError, match="This is no SentencePiece model"):
            spiece.to_json(content)
    with pytest.raises(ConfigError, match="no unigram model"):
        spiece.to_json(_model(PIECES, _field(3, 2)))
    for pieces in ([], PIECES[1:]):
        with pytest.raises(ConfigError, match="Its first pieces are"):
            spiece.to_json(_model(pieces))
