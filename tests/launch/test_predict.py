import json

import jax
import numpy as np
import pytest
from PIL import Image

from common.models import autoui
from common.models.text import Tokenizer, grammar_corpus
from launch import convert, predict
from learner.checkpoint import save_policy
from tests import t5_folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A fresh tiny policy: what it says means nothing."""
    path = tmp_path_factory.mktemp("tiny")
    config = autoui.PRESETS["tiny"]
    meta = {
        "model": config.to_dict(),
        "tokenizer": Tokenizer.train(grammar_corpus(), 400).to_json(),
        "sampling": {},
    }
    save_policy(path, jax.device_get(autoui.init(config, jax.random.key(0))), meta)
    return path


@pytest.fixture
def words(checkpoint, tmp_path, monkeypatch):
    """Flags for a screenshot with transparency, as some tools make them."""
    monkeypatch.setattr(predict.one_thread, "configure", lambda: None)
    Image.new("RGBA", (90, 160), (9, 99, 199, 128)).save(tmp_path / "screen.png")
    return [
        f"--checkpoint={checkpoint}",
        f"--image={tmp_path / 'screen.png'}",
        "--goal=Open the Clock app",
    ]


def test_it_prints_text_and_meaning_and_draws(words, tmp_path, capsys):
    assert predict.main([*words, f"--output={tmp_path / 'drawn.png'}"]) == 0
    text, meaning = capsys.readouterr().out.rsplit("\n", 2)[:2]
    assert set(json.loads(meaning)) in ({"name", "reason"}, {"type", "touch_yx", "lift_yx", "text"})
    with Image.open(tmp_path / "drawn.png") as drawn:
        assert drawn.size == (90, 160)
        assert (np.asarray(drawn) != (9, 99, 199)).any()
    assert predict.main(words) == 0
    assert capsys.readouterr().out.startswith(text)  # greedy is always the same


def test_the_previous_action_may_be_the_whole_text_or_its_decision(words, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr("actors.policy.Policy.act", stand_in(asked))
    decision = '"action_type": "PRESS_HOME"'
    for previous in (decision, f"Action Plan: [PRESS_HOME] ; Action Decision: {decision}", ""):
        assert predict.main([*words, f"--previous={previous}", "--temperature=0.5"]) == 0
    goal = "Goal: Open the Clock app"
    said = f"Previous Actions: {decision} {goal}"
    assert asked == [(said, 0.5), (said, 0.5), (f"Previous Actions:  {goal}", 0.5)]
    meaning = json.loads(capsys.readouterr().out.splitlines()[1])
    assert (meaning["type"], meaning["text"]) == ("TYPE", "a")


def stand_in(asked):
    """Returns a stand-in for Policy.act that records prompts and temperatures."""

    def act(self, prompt, image):
        asked.append((prompt, self.sampling.temperature))
        assert image.shape == (160, 90, 3)

        class Decision:
            text = 'Action Decision: "action_type": "TYPE", "typed_text": "a"'

        return Decision

    return act


def test_a_policy_from_hugging_face_needs_its_vision_model(words, tmp_path, capsys):
    folder = t5_folder.make(tmp_path / "hf", t5_folder.VISION_DIM)
    sizes = ["--prompt-length=30", "--action-length=8"]
    assert convert.main(["import", str(folder), f"--output={tmp_path / 'out'}", *sizes]) == 0
    words = [*words, f"--checkpoint={tmp_path / 'out'}"]
    assert predict.main([*words, f"--vision-folder={t5_folder.VISION}"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["name"] == "no_decision"
    assert predict.main(words) == 2
    assert "give the folder of BLIP-2" in capsys.readouterr().err


def test_bad_input_is_a_sentence_and_exit_code_2(words, tmp_path, capsys):
    (tmp_path / "text.png").write_text("no image")
    for change, sentence in (
        ([f"--image={tmp_path / 'nowhere.png'}"], "--image"),
        ([f"--image={tmp_path / 'text.png'}"], "--image"),
        (["--temperature=-1"], "--temperature must be in 0..100, not -1.0."),
        (["--seed=-1"], "--seed must be in 0..2147483647, not -1."),
        (["--checkpoint=nowhere"], "There is no checkpoint folder"),
        ([f"--output={tmp_path / 'drawn.xyz'}"], "--output"),
        (["--output=/dev/null/drawn.png"], "--output"),
    ):
        assert predict.main([*words, *change]) == 2, sentence
        err = capsys.readouterr().err
        assert err.startswith(f"predict: {sentence}")
        assert len(err.splitlines()) == 1
