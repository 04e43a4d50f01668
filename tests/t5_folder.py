"""Small Hugging Face folders: the golden models, with a tokenizer that has T5's ways."""

import functools
import pathlib
import shutil

import tokenizers
from tokenizers import decoders, pre_tokenizers, trainers
from tokenizers import models as kinds

from common.models import hf_files
from common.models.text import Tokenizer, grammar_corpus

GOLDEN = pathlib.Path(__file__).parent / "golden"
GATED, TIED = GOLDEN / "autoui_gated_untied", GOLDEN / "autoui_relu_tied"
VISION, VISION_DIM = GOLDEN / "blip2_vision", 32
VOCAB = 320  # of the golden models
CORPUS = (
    "Open the Clock app and search for the best pizza near me in Zurich, quickly please",
    "Go to bestbuy.com, search for 'logitech webcam (hd)', and select the first entry! Why? #1 & 2",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ abcdefghijklmnopqrstuvwxyz -0123456789 @ / = + * % $ é ü",
)


@functools.cache
def tokenizer_json() -> str:
    """Unigram pieces that begin with a blank; no piece for braces, backslashes and rare letters."""
    backend = tokenizers.Tokenizer(kinds.Unigram())
    blank = {"replacement": "▁", "prepend_scheme": "always", "split": True}
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(**blank)]
    )
    backend.decoder = decoders.Metaspace(**blank)
    trainer = trainers.UnigramTrainer(
        vocab_size=300,
        special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    backend.train_from_iterator([*list(grammar_corpus())[::40], *CORPUS * 20], trainer)
    return backend.to_str()


def tokenizer() -> Tokenizer:
    return Tokenizer.from_json(tokenizer_json())


def make(folder: pathlib.Path, image_dim: int = 1408) -> pathlib.Path:
    """Makes a folder with the gated golden model and the tokenizer.

    With an `image_dim` of VISION's it has the first columns of `image_dense`.
    """
    folder.mkdir()
    shutil.copy(GATED / "config.json", folder)
    tensors = hf_files.read_tensors(GATED)
    tensors["image_dense.weight"] = tensors["image_dense.weight"][:, :image_dim]
    hf_files.write_tensors(folder, tensors, {})
    (folder / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
    return folder
