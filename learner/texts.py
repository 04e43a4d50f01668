"""Encodings of texts by a frozen RoBERTa, for the critic; each text is encoded once."""

from __future__ import annotations

import collections
import json
import pathlib
from collections.abc import Sequence

import jax
import numpy as np
import tokenizers

from common.errors import ConfigError
from common.models import roberta

LENGTHS = (32, 64, 128, 256, 512)  # tokens; each is compiled once
BATCH = 16  # texts


class TextEncoder:
    """Turns texts into vectors and remembers the newest of them.

    Prompts change with every action, but a step is read dozens of times while it is in replay,
    and the first prompts of a task are all alike.

    Attributes:
      width: D.
    """

    def __init__(self, folder: pathlib.Path | str, capacity: int):
        """Reads the files of a RoBERTa; remembers up to `capacity` texts.

        Raises:
          ConfigError: A file is missing, unreadable or of another model.
        """
        self._config, params = roberta.load(folder)
        self._params = jax.device_put(params)
        self._tokenizer = _tokenizer(pathlib.Path(folder) / "tokenizer.json", self._config)
        self._capacity = capacity
        self._known: collections.OrderedDict[str, np.ndarray] = collections.OrderedDict()
        self.width = self._config.hidden_size

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Returns float32 [N, D], one row for each of the N texts."""
        new = sorted(set(texts) - self._known.keys(), key=len)
        for start in range(0, len(new), BATCH):
            part = new[start : start + BATCH]
            rows = roberta.encode_texts(self._params, self._config, self._ids(part))
            for text, row in zip(part, np.asarray(rows), strict=False):
                self._known[text] = row.copy()
        for text in texts:
            self._known.move_to_end(text)
        encodings = np.stack([self._known[text] for text in texts])
        while len(self._known) > self._capacity:
            self._known.popitem(last=False)
        return encodings

    def _ids(self, texts: Sequence[str]) -> np.ndarray:
        """Returns padded ids [BATCH, L]; of a text that is too long the end, as in prompts."""
        c = self._config
        found = [self._tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        longest = max(map(len, found)) + 2
        length = next((size for size in LENGTHS if size >= longest), LENGTHS[-1])
        length = min(length, c.max_tokens)
        ids = np.full((BATCH, length), c.pad_token_id, np.int32)
        for row, words in zip(ids, found, strict=False):
            words = [c.bos_token_id, *words[max(0, len(words) - length + 2) :], c.eos_token_id]
            row[: len(words)] = words
        return ids


def _tokenizer(path: pathlib.Path, config: roberta.RobertaConfig) -> tokenizers.Tokenizer:
    try:
        text = path.read_text(encoding="utf-8")
        kind = json.loads(text)["model"]["type"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is no tokenizer.json: {error!r}.") from error
    if kind != "BPE":
        raise ConfigError(f"{path} is of the kind {kind}; RoBERTa's is BPE.")
    backend = tokenizers.Tokenizer.from_str(text)
    if backend.get_vocab_size() > config.vocab_size:
        raise ConfigError(
            f"{path} has {backend.get_vocab_size()} tokens and the model beside it "
            f"{config.vocab_size}."
        )
    backend.encode_special_tokens = True  # "</s>" in a prompt is four characters
    backend.no_truncation()
    backend.no_padding()
    return backend
