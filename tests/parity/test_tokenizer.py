"""Our reading of spiece.model against SentencePiece itself and transformers' T5 tokenizer."""

import json

import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentencepiece = pytest.importorskip("sentencepiece")

from common import actions  # noqa: E402
from common.actions import Action, ActionType  # noqa: E402
from common.models import hf_tokenizer  # noqa: E402
from common.models.text import grammar_corpus  # noqa: E402
from tests import t5_folder  # noqa: E402

SAMPLE = (
    *t5_folder.CORPUS,
    "",
    "  blanks  and\ttabs\nand lines ",
    "½ ﬁne … １２ Ａ",  # NFKC takes them apart
    "{x} \\ ~ 東京 🎉",  # unknown ones, alone and in a row
    "naïve café Zürich",
    actions.render(Action(ActionType.DUAL_POINT, (0.1234, 0.5), (0.1234, 0.5))),
    actions.render(Action(ActionType.TYPE, text="best pizza, near me")),
    actions.prompt("Open the Clock app", '"action_type": "PRESS_HOME"'),
)


@pytest.fixture(scope="module", params=["unigram", "nmt_nfkc_cf"])
def folder(request, tmp_path_factory):
    """A spiece.model made as T5's was, and one that folds the case."""
    path = tmp_path_factory.mktemp("spiece")
    texts = [*list(grammar_corpus())[::20], *t5_folder.CORPUS * 5]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_prefix=str(path / "spiece"),
        vocab_size=300,
        hard_vocab_limit=False,
        model_type="unigram",
        normalization_rule_name="nmt_nfkc_cf" if request.param == "nmt_nfkc_cf" else "nmt_nfkc",
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    return path


def test_ids_are_those_of_sentencepiece_and_of_transformers(folder, tmp_path):
    tokenizer = hf_tokenizer.load(folder)
    pieces = sentencepiece.SentencePieceProcessor(str(folder / "spiece.model"))
    assert tokenizer.vocab_size == pieces.vocab_size() + 100
    hf_tokenizer.save(tmp_path, tokenizer)
    theirs = transformers.T5Tokenizer.from_pretrained(tmp_path)
    for text in SAMPLE:
        expected = [*pieces.encode(text), 1]
        assert tokenizer.encode_prompt(text, len(expected)).tolist() == expected, text
        assert theirs(text).input_ids == expected, text
        if "<unk>" not in (decoded := tokenizer.decode(expected)):
            assert decoded == pieces.decode(expected)


def test_as_many_sentinels_as_the_folder_says(folder):
    (folder / "tokenizer_config.json").write_text(json.dumps({"extra_ids": 0}))
    pieces = sentencepiece.SentencePieceProcessor(str(folder / "spiece.model"))
    assert hf_tokenizer.load(folder).vocab_size == pieces.vocab_size()
