"""Offline scores over recorded episodes as the learner writes them."""

import dataclasses
import io
import json

import numpy as np
import pytest
from PIL import Image

from common import actions
from common.actions import Action, ActionType
from common.types import Ending
from launch import offline
from learner.archive import Archive
from tests.episodes import episode

TAP = actions.render(Action(ActionType.DUAL_POINT, (0.2, 0.5), (0.2, 0.5)))
HOME = actions.render(Action(ActionType.PRESS_HOME))


def png(shade):
    buffer = io.BytesIO()
    Image.fromarray(np.full((8, 4, 3), shade, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def recordings(tmp_path):
    """Two successes of two steps, a failure, and an episode without screens."""
    archive = Archive(tmp_path / "episodes")
    endings = [Ending.SUCCESS, Ending.SUCCESS, Ending.HORIZON, Ending.SUCCESS]
    for seq, ending in enumerate(endings):
        made = dataclasses.replace(
            episode(2, seq=seq, ending=ending),
            actions=(TAP, HOME),
            prompts=(f"{seq} first", f"{seq} second"),
            screens=() if seq == 3 else (png(10 * seq), png(10 * seq + 1)),
            source="expert" if seq == 1 else "policy",
        )
        if seq == 0:
            made.trajectory.invalid[1] = 1
        archive.write(made, seq)
    archive.close()
    return tmp_path / "episodes"


def read(recordings, source="any", failures=False):
    seen = []

    def predict(prompt, image):
        seen.append((prompt, int(image[0, 0, 0])))
        return TAP

    folders = sorted(path.parent for path in recordings.glob("*/episode.json"))
    return seen, list(offline.read(folders, source, failures, predict))


def test_the_policy_sees_what_was_recorded_and_only_what_had_an_effect(recordings):
    seen, episodes = read(recordings)
    assert seen == [("0 first", 0), ("1 first", 10), ("1 second", 11)]
    assert [[step.action for step in steps] for steps in episodes] == [[TAP], [TAP, HOME]]
    assert len(read(recordings, failures=True)[1]) == 3
    assert len(read(recordings, source="expert")[1]) == 1


def test_a_score_is_printed(recordings, tmp_path, capsys, monkeypatch):
    class FakePolicy:
        def __init__(self, *args):
            pass

        def set_params(self, params, version):
            pass

        def act(self, prompt, image):
            return type("Decision", (), {"text": TAP})

    from common.models.autoui import AutoUIConfig
    from common.models.text import Tokenizer

    tokenizer = Tokenizer.train(["a tap"], vocab_size=300).to_json()
    meta = {"step": 5, "model": AutoUIConfig().to_dict(), "tokenizer": tokenizer, "sampling": {}}
    monkeypatch.setattr("learner.checkpoint.load_policy", lambda path, needs: ({}, meta))
    monkeypatch.setattr("actors.policy.Policy", FakePolicy)
    monkeypatch.setattr(offline.one_thread, "configure", lambda: None)
    words = [f"--checkpoint={tmp_path}", f"--recordings={recordings}"]
    assert offline.main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["step"], found["steps"], found["matched"]) == (5, 3, 2)
    assert (found["episodes"], found["complete"], found["partial"]) == (2, 1, 0.75)


def test_what_is_no_recording_is_a_sentence_and_exit_code_2(recordings, tmp_path, capsys):
    assert offline.main([f"--checkpoint={tmp_path}", f"--recordings={tmp_path}"]) == 2
    assert "has no episode with screens" in capsys.readouterr().err
    (next(recordings.glob("*/episode.json"))).write_text("{}")
    with pytest.raises(offline.ConfigError, match="is no recorded episode"):
        read(recordings)
