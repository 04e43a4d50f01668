import json
import random

import numpy as np
import pytest
import tokenizers

from common import actions
from common.actions import Action, ActionType
from common.errors import ConfigError
from common.models import hf_tokenizer
from common.models.text import Tokenizer
from tests import t5_folder


@pytest.fixture(scope="module")
def tokenizer():
    return t5_folder.tokenizer()


def _texts(rng):
    """Typed texts of characters that T5 knows, blanks among them."""
    alphabet = "abcXYZ 019.,;:'!?()[]-@/é"
    for _ in range(200):
        yield "".join(rng.choices(alphabet, k=rng.randrange(1, 30)))


def test_actions_survive_but_for_the_length_of_blanks(tokenizer):
    rng = random.Random(0)
    points = [tuple(round(rng.random(), 4) for _ in range(2)) for _ in range(100)]
    sent = [Action(ActionType.DUAL_POINT, a, b) for a, b in zip(points, points[::-1], strict=True)]
    sent += [Action(kind) for kind in ActionType if kind is not ActionType.DUAL_POINT]
    sent += [Action(ActionType.TYPE, text=text) for text in _texts(rng)]
    for action in sent:
        ids = tokenizer.encode_action(actions.render(action), 400)
        back = actions.parse(tokenizer.decode(ids))
        assert isinstance(back, Action)
        assert (back.type, back.touch_yx, back.lift_yx) == (
            action.type,
            action.touch_yx,
            action.lift_yx,
        )
        assert back.text.split() == action.text.split()
        assert back.text == back.text.replace("  ", " ")


@pytest.mark.parametrize("typed", ["a {b}", 'say "hi"', "back\\slash", "東京", "end</s>", "x<pad>"])
def test_an_action_that_would_become_another_is_refused(tokenizer, typed):
    text = actions.render(Action(ActionType.TYPE, text=typed))
    with pytest.raises(ConfigError, match="The tokenizer turns the action"):
        tokenizer.encode_action(text, 400)


def test_no_prompt_holds_padding_or_an_end_before_its_end(tokenizer):
    ids = tokenizer.encode_prompt("a </s> b <pad> {c}", 30)
    count = int((ids != 0).sum())
    assert ids[count - 1] == 1
    assert (ids[: count - 1] > 1).all()
    assert not ids[count:].any()


def test_settings_of_length_in_the_file_are_not_ours():
    backend = tokenizers.Tokenizer.from_str(t5_folder.tokenizer_json())
    backend.enable_truncation(3)
    backend.enable_padding(length=50)
    ids = Tokenizer.from_json(backend.to_str()).encode_prompt("Open the Clock app", 40)
    np.testing.assert_array_equal(
        ids, t5_folder.tokenizer().encode_prompt("Open the Clock app", 40)
    )


def test_a_folder_comes_back(tokenizer, tmp_path):
    for name, written in (("t5", tokenizer), ("bytes", Tokenizer.train(["a tap"], 300))):
        folder = tmp_path / name
        folder.mkdir()
        hf_tokenizer.save(folder, written)
        read = hf_tokenizer.load(folder)
        assert read.to_json() == written.to_json()
        assert (folder / "tokenizer.json").read_text() == read.to_json()
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        assert (settings["pad_token"], settings["eos_token"]) == ("<pad>", "</s>")
        assert ("unk_token" in settings) == (name == "t5")


def test_what_is_no_tokenizer_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"has no tokenizer: neither tokenizer.json nor spiece"):
        hf_tokenizer.load(tmp_path)
    (tmp_path / "spiece.model").write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match=r"spiece.model: This is no SentencePiece model"):
        hf_tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"Cannot read .*tokenizer.json"):
        hf_tokenizer.load(tmp_path)
    other = json.loads(t5_folder.tokenizer_json().replace("<pad>", "<s>"))
    (tmp_path / "tokenizer.json").write_text(json.dumps(other))
    with pytest.raises(ConfigError, match=r"first tokens are \('<s>', '</s>'\); they should be"):
        hf_tokenizer.load(tmp_path)
