"""Tokenizers in Hugging Face folders, in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from common.errors import ConfigError
from common.models import hf_files, spiece
from common.models.text import SPECIAL_TOKENS, Tokenizer

_JSON, _PIECES, _SETTINGS = "tokenizer.json", "spiece.model", "tokenizer_config.json"


def load(folder: Path) -> Tokenizer:
    """Reads tokenizer.json, or else spiece.model.

    Raises:
      ConfigError: There is neither, or it is unreadable or has other special tokens than T5.
    """
    for name, read in ((_JSON, _read_json), (_PIECES, _read_pieces)):
        if (folder / name).exists():
            try:
                return Tokenizer.from_json(read(folder / name))
            except (OSError, UnicodeDecodeError, ConfigError) as error:
                raise ConfigError(f"Cannot read {folder / name}: {error}") from error
    raise ConfigError(f"{folder} has no tokenizer: neither {_JSON} nor {_PIECES}.")


def save(folder: Path, tokenizer: Tokenizer) -> None:
    """Writes tokenizer.json, and the settings with which transformers' AutoTokenizer reads it."""
    (folder / _JSON).write_text(tokenizer.to_json(), encoding="utf-8")
    pad, end = SPECIAL_TOKENS
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": pad,
        "eos_token": end,
    }
    if tokenizer.has(spiece.UNKNOWN):
        settings["unk_token"] = spiece.UNKNOWN
    hf_files.write_json(folder / _SETTINGS, settings)


def _read_json(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _read_pieces(path: Path) -> str:
    settings = path.with_name(_SETTINGS)
    sentinels = hf_files.read_json(settings).get("extra_ids") if settings.exists() else None
    return spiece.to_json(path.read_bytes(), spiece.SENTINELS if sentinels is None else sentinels)
