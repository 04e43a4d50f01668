"""Each text is encoded once, and as a batch of its own would be."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from common.errors import ConfigError
from common.models import roberta
from learner.texts import TextEncoder

GOLDEN = Path(__file__).parents[1] / "golden" / "roberta"
SPECIAL = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}


def tokenizer(size=48):
    """Of single characters, with the special tokens that RoBERTa's adds by itself."""
    letters = "abcdefghijklmnopqrstuvwxyzG:<>/0123456789Ġ"[: size - len(SPECIAL)]
    vocab = SPECIAL | {letter: 4 + i for i, letter in enumerate(letters)}
    made = tokenizers.Tokenizer(models.BPE(vocab, [], unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    made.add_special_tokens(list(SPECIAL))
    made.enable_truncation(8)
    return made


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    tokenizer().save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.fixture
def calls(monkeypatch):
    made, original = [], roberta.encode_texts

    def count(params, config, ids):
        made.append(ids)
        return original(params, config, ids)

    monkeypatch.setattr(roberta, "encode_texts", count)
    return made


def test_encodings_are_those_of_the_model(folder):
    encode = TextEncoder(folder, 100)
    config, params = roberta.load(folder)
    texts = ["open the clock", "a", ""]
    ids = [[0, *(tokenizer().encode(t, add_special_tokens=False).ids), 2] for t in texts]
    assert [len(row) for row in ids] == [16 - 6, 3, 2]  # truncated by the tokenizer's own setting
    got = encode(texts)
    assert got.shape == (3, encode.width) and got.dtype == np.float32
    for row, text in ((1, ids[1]), (2, ids[2])):
        alone = roberta.encode_texts(params, config, np.array([text], np.int32))
        np.testing.assert_allclose(got[row], alone[0], atol=1e-5)


def test_a_text_is_encoded_once_in_any_company_and_order(folder, calls):
    encode = TextEncoder(folder, 100)
    first = encode(["open", "close", "open"])
    assert len(calls) == 1 and (calls[0][:, 0] == 0).sum() == 2
    np.testing.assert_array_equal(first[0], first[2])
    np.testing.assert_array_equal(encode(["close", "open"]), first[[1, 0]])
    assert len(calls) == 1
    encode([f"text {i}" for i in range(40)])
    assert {ids.shape for ids in calls} == {(16, 32)}  # one shape, compiled once


def test_the_oldest_is_forgotten(folder, calls):
    encode = TextEncoder(folder, 2)
    encode(["a", "b", "c"])
    encode(["b", "c"])
    assert len(calls) == 1
    encode(["a"])
    assert len(calls) == 2


def test_of_a_long_text_the_end_counts(folder, calls):
    encode = TextEncoder(folder, 100)
    end = "x" * 30
    np.testing.assert_array_equal(encode(["goal" + end]), encode([end]))
    encode(["</s>"])
    assert (calls[-1] == 2).sum() == 1  # the end token; in a text it is four characters


def test_files_that_do_not_fit_are_refused(folder):
    tokenizer(46).save(str(folder / "tokenizer.json"))
    TextEncoder(folder, 1)
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"BPE"', '"Unigram"'))
    with pytest.raises(ConfigError, match="is of the kind Unigram"):
        TextEncoder(folder, 1)
    path.write_text("{}")
    with pytest.raises(ConfigError, match="is no tokenizer"):
        TextEncoder(folder, 1)
    path.unlink()
    with pytest.raises(ConfigError, match="is no tokenizer"):
        TextEncoder(folder, 1)
