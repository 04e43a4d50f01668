"""Text to token ids and back, by our byte-level BPE over the grammar or by T5's own pieces."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from common.errors import ConfigError
from common.types import EOS_ID, PAD_ID

# Each alternative is a chunk that BPE may merge into one token but never beyond: the fixed text of
# the grammar, two digits, a word with its leading space. A tap is then 15 tokens and the end token,
# and two coordinates that are close share their first token.
_CHUNK = "|".join(
    [
        r"Action Plan: \[[A-Z_,]*\] ; Action Decision: ",
        r'"action_type": "DUAL_POINT", "touch_point": "\[[01]\.',
        r'"action_type": "[A-Z_]+", "touch_point": "\[-1\.0, -1\.0\]", '
        r'"lift_point": "\[-1\.0, -1\.0\]", "typed_text": "',
        r", [01]\.",
        r'\]", "lift_point": "\[[01]\.',
        r'\]", "typed_text": "',
        r"Previous Actions: ",
        r" Goal:",
        r"\d{2}",
        r" ?[A-Za-z]+",
        r" ?\d+",
    ]
)
_LONGEST_TOKEN = 200  # bytes; the longest chunk of the grammar has 130


SPECIAL_TOKENS = ("<pad>", "</s>")  # in the order of PAD_ID and EOS_ID, as in T5


class Tokenizer:
    """Id 0 is padding, id 1 the end token; no text holds them.

    What `train` makes is lossless on any text. T5's pieces have no sign for some characters, such
    as braces and backslashes, and join spaces and line breaks to one space.
    """

    def __init__(self, backend: tokenizers.Tokenizer, text: str = ""):
        """Keeps the text that `backend` was read from, for it loses the last digits of scores."""
        self._json = text or backend.to_str()
        self._backend = backend
        self._backend.encode_special_tokens = True  # "</s>" in a text is four characters
        self._backend.no_truncation()
        self._backend.no_padding()

    @classmethod
    def train(cls, corpus: Iterable[str], vocab_size: int = 1024) -> Tokenizer:
        """Learns merges from `corpus`; see `grammar_corpus` for what every corpus should hold.

        Raises:
          ConfigError: `vocab_size` has no room for all bytes and the two special tokens.
        """
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        if vocab_size < len(alphabet) + 2:
            raise ConfigError(
                f"vocab_size is {vocab_size}; it must be {len(alphabet) + 2} or more."
            )
        backend = tokenizers.Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(tokenizers.Regex(_CHUNK), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=alphabet,
            max_token_length=_LONGEST_TOKEN,
            show_progress=False,
        )
        backend.train_from_iterator(corpus, trainer)
        return cls(backend)

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """The inverse of `to_json`, or any tokenizer.json with T5's special tokens.

        Raises:
          ConfigError: It is not such a text.
        """
        try:
            backend = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # tokenizers raises nothing narrower
            raise ConfigError(f"This is not a tokenizer: {text[:40]!r}: {error}.") from error
        specials = tuple(backend.id_to_token(i) for i in (PAD_ID, EOS_ID))
        if specials != SPECIAL_TOKENS:
            raise ConfigError(
                f"This is a tokenizer whose first tokens are {specials}; they should be "
                f"{SPECIAL_TOKENS}, as in T5."
            )
        return cls(backend, text)

    def to_json(self) -> str:
        return self._json

    @property
    def vocab_size(self) -> int:
        return self._backend.get_vocab_size()

    def has(self, token: str) -> bool:
        return self._backend.token_to_id(token) is not None

    def encode_prompt(self, text: str, length: int) -> np.ndarray:
        """Returns int32 [length]: the end of the text if it is too long, the end token, padding."""
        ids = self.encode(text)
        return _padded(ids[max(0, len(ids) - length + 1) :], length)

    def encode_action(self, text: str, length: int) -> np.ndarray:
        """Returns int32 [length]: the text, the end token, padding.

        Raises:
          ConfigError: The text is too long, or the tokenizer has no sign for some of it; but for
            the length of blanks, what is read back would be another action.
        """
        ids = self.encode(text)
        if (found := self.decode(ids)).split() != text.split():
            raise ConfigError(f"The tokenizer turns the action {text!r} into {found!r}.")
        if len(ids) >= length:
            raise ConfigError(
                f"The action needs {len(ids) + 1} tokens and action_length is {length}: {text}"
            )
        return _padded(ids, length)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Returns the text before the first end token or padding; unknown ids are skipped."""
        return self._backend.decode(
            list(itertools.takewhile(lambda i: i not in (PAD_ID, EOS_ID), map(int, ids))),
            skip_special_tokens=False,
        )

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without an end token."""
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return [i for i in ids if i > EOS_ID]  # T5's pieces include the special tokens' names

    def pieces(self) -> list[bytes]:
        """Returns what each id adds to a text, empty for special tokens.

        Pieces of SentencePiece that begin a text add a space there, which `decode` leaves out.

        Raises:
          ConfigError: Ids stand for texts in another way than in byte-level BPE or SentencePiece.
        """
        tokens = [self._backend.id_to_token(i) or "" for i in range(self.vocab_size)]
        decoder = self._backend.decoder
        if isinstance(decoder, decoders.ByteLevel):
            byte_of = _byte_of_characters()
            found = [bytes(map(byte_of.__getitem__, token)) for token in tokens]
        elif isinstance(decoder, decoders.Metaspace):
            found = [token.replace("▁", " ").encode() for token in tokens]
        else:
            raise ConfigError(
                f"The tokenizer's decoder is {decoder!r}; it should be ByteLevel or Metaspace."
            )
        for special in {PAD_ID, EOS_ID, *self._backend.get_added_tokens_decoder()}:
            found[special] = b""
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())


def _byte_of_characters() -> dict[str, int]:
    """GPT-2's printable stand-ins for bytes: themselves where they can be, else from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printable))
    return {chr(byte): byte for byte in printable} | {
        chr(256 + index): byte for index, byte in enumerate(others)
    }


def _padded(ids: list[int], length: int) -> np.ndarray:
    padded = np.full(length, PAD_ID, np.int32)
    padded[: len(ids)] = ids
    padded[len(ids)] = EOS_ID
    return padded


_ELSEWHERE = (
    "TYPE",
    "PRESS_BACK",
    "PRESS_HOME",
    "PRESS_ENTER",
    "STATUS_TASK_COMPLETE",
    "STATUS_TASK_IMPOSSIBLE",
)


def grammar_corpus() -> Iterator[str]:
    """Yields actions and prompts that make every fixed text and every pair of digits one token."""
    nowhere = '"touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, -1.0]"'
    for y, x in itertools.product(range(100), range(0, 100, 9)):
        yield from _samples("DUAL_POINT", _points(f"0.{y:02}00, 0.{x:02}00"))
    for y, x in itertools.product(range(100), range(0, 100, 33)):
        yield from _samples("DUAL_POINT", _points(f"1.00{y:02}, 1.00{x:02}"))
    for kind in _ELSEWHERE:
        for _ in range(100):
            yield from _samples(kind, nowhere)


def _points(point: str) -> str:
    return f'"touch_point": "[{point}]", "lift_point": "[{point}]"'


def _samples(kind: str, points: str) -> Iterator[str]:
    decision = f'"action_type": "{kind}", {points}, "typed_text": ""'
    yield f"Action Plan: [{kind}] ; Action Decision: {decision}"
    yield f"Previous Actions: {decision} Goal:"
