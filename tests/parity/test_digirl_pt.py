"""Files as DigiRL and DistRL write them, and files that want more than to be read."""

import collections
import os
import pickle
import zipfile

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from common import actions  # noqa: E402
from common.actions import Action, ActionType  # noqa: E402
from common.errors import ConfigError  # noqa: E402
from launch import convert, data  # noqa: E402
from learner import build  # noqa: E402
from learner.checkpoint import load_policy  # noqa: E402
from learner.dataset import Dataset  # noqa: E402
from learner.digirl_pt import read_trajectories  # noqa: E402
from tests import t5_folder  # noqa: E402


def steps(**changes):
    """Two steps with the types of `batch_interact_environment` and what is added after it."""
    features = [np.arange(8, dtype=np.float32) + i for i in range(3)]
    made = [
        {
            "observation": "Previous Actions: Goal: Open Maps</s>",
            "next_observation": "Previous Actions: Goal: Open Maps</s>",
            "image_features": features[i],
            "image_path": f"/home/somebody/images/17_{i + 1}.png",
            "video_path": None,
            "next_image_features": features[i + 1],
            "task": "Open Maps",
            "reward": i,
            "done": i == 1,
            "action": "Action Decision: x",
            "trajectory_reward": np.sum([0, 1]),
            "mc_return": np.float64(0.5) ** (1 - i),
        }
        for i in range(2)
    ]
    for step in made:
        step.update(changes)
    return made


def saved(folder, content, **options):
    torch.save(content, folder / "trajectories.pt", **options)
    return folder / "trajectories.pt"


def test_a_file_of_digirl_is_read(tmp_path):
    (first, second) = read_trajectories(saved(tmp_path, [steps(), []]))
    assert second == [] and len(first) == 2
    assert first[1]["action"] == "Action Decision: x" and first[1]["task"] == "Open Maps"
    assert [step["reward"] for step in first] == [0.0, 1.0]
    assert [step["done"] for step in first] == [0.0, 1.0]
    np.testing.assert_array_equal(first[1]["image_features"], np.arange(1, 9))
    assert first[1]["image_features"].dtype == np.float32
    assert set(first[0]) == {"observation", "action", "task", "reward", "done", "image_features",
                             "next_image_features"}  # fmt: skip


def test_a_file_of_distrl_is_read(tmp_path):
    more = {
        "log_prob": torch.tensor(-0.5),
        "penalty": -1,
        "trainer_time_index": 3,
        "image_features": torch.ones(8, dtype=torch.bfloat16),
        "done": torch.tensor(False),
    }
    (first,) = read_trajectories(saved(tmp_path, [steps(**more)]))
    np.testing.assert_array_equal(first[0]["image_features"], np.ones(8))
    assert first[0]["done"] == 0.0


class Harmful:
    """Runs a command when it is unpickled by a reader that lets it."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return os.mkdir, (str(self._path),)


class Evaluates:
    def __reduce__(self):
        return eval, ("1 + 1",)


Named = collections.namedtuple("Named", "a")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (lambda path: [steps(task=Harmful(path))], r"posix\.mkdir|nt\.mkdir"),
        (lambda path: [steps(image_path=Harmful(path))], "mkdir"),  # also where it is not kept
        (lambda path: Evaluates(), "eval"),
        (lambda path: [steps(task=Named("x"))], "Named"),
        (lambda path: [steps(image_features=np.array([Harmful(path)], dtype=object))], "mkdir"),
    ],
)
def test_what_wants_code_to_run_is_refused_by_name_and_nothing_runs(tmp_path, content, name):
    mark = tmp_path / "mark"
    path = saved(tmp_path, content(mark))
    with pytest.raises(ConfigError, match=name) as error:
        read_trajectories(path)
    assert str(path) in str(error.value) and not mark.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": torch.ones(2)}, "holds a dict, not a list of trajectories"),
        ([{"a": 1}], "trajectory 0 is no list of steps"),
        ([steps(), steps(password="x")], "trajectory 1, step 0 holds 'password'; known are"),
        ([steps(action=3)], "trajectory 0, step 0: action is a int, no text"),
        ([steps(reward="1")], "reward is a str, no number"),
        ([steps(reward=None)], "reward is no number"),
        ([steps(image_features="Image feature is not a tensor")], "image_features is a str"),
        ([steps(image_features=np.array([1.0, np.nan]))], "no finite number"),
        ([steps(image_features=np.array(["x", "y"], dtype=object))], "array of the type 'O8'"),
    ],
)
def test_what_is_no_trajectory_is_refused_by_name(tmp_path, content, message):
    with pytest.raises(ConfigError, match=message):
        read_trajectories(saved(tmp_path, content))


def test_plain_pickles_old_files_and_rubbish_are_refused(tmp_path):
    path, mark = tmp_path / "trajectories.pt", tmp_path / "mark"
    for write in (
        lambda: path.write_bytes(pickle.dumps([Harmful(mark)])),
        lambda: saved(tmp_path, [steps(task=Harmful(mark))], _use_new_zipfile_serialization=False),
        lambda: path.write_bytes(b"PK\x03\x04 rubbish"),
        lambda: path.write_bytes(b""),
        path.unlink,
    ):
        write()
        with pytest.raises(ConfigError, match=r"trajectories\.pt"):
            read_trajectories(path)
        assert not mark.exists()


def test_a_damaged_file_is_refused_and_does_nothing_else(tmp_path):
    path = saved(tmp_path, [steps(log_prob=torch.tensor(0.5))])
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    (pickled,) = (name for name in members if name.endswith("data.pkl"))
    rng, refused = np.random.default_rng(0), 0
    for _ in range(150):
        broken = bytearray(members[pickled])
        for at in rng.integers(0, len(broken), 2):
            broken[at] = rng.integers(256)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name, content in members.items():
                archive.writestr(name, bytes(broken) if name == pickled else content)
        try:
            read_trajectories(path)
        except ConfigError:
            refused += 1
    assert refused > 75  # the rest changed a letter or a number


@pytest.mark.slow
def test_a_file_becomes_episodes_that_a_converted_policy_learns_from(tmp_path, capsys):
    folder, model, theirs = t5_folder.make(tmp_path / "hf"), tmp_path / "model", tmp_path / "theirs"
    words = ["import", str(folder), f"--output={model}", "--prompt-length=40"]
    assert convert.main([*words, "--action-length=120"]) == 0
    _, meta = load_policy(model)
    tokens, width = meta["model"]["image_tokens"], meta["model"]["image_dim"]
    screen = np.linspace(-1, 1, tokens * width, dtype=np.float32)
    tap = actions.render(Action(ActionType.DUAL_POINT, (0.25, 0.5), (0.25, 0.5)))
    kept = [steps(action=tap, image_features=screen) for _ in range(8)]
    path = saved(tmp_path, [*kept, steps(action=tap)])
    words = ["import", "digirl-pt", str(path), f"--output={theirs}", f"--model={model}"]
    assert data.main(words) == 0
    said = capsys.readouterr()
    assert f"Wrote 8 of 9 episodes to {theirs}." in said.out
    assert f"Left out 1: 8 features, and the model takes {tokens * width}" in said.err
    made = [recorded.episode for recorded in Dataset(theirs)]
    assert len(made) == 8 and all(one.success and one.goal == "Open Maps" for one in made)
    np.testing.assert_array_equal(made[0].trajectory.features[0].ravel(), screen)
    overrides = {"init": str(model), "offline.data": str(theirs), "offline.updates": 1,
                 "warm_start.demonstrations": 0, "reinforce.episodes": 0,
                 "reinforce.batch_steps": 20, "reinforce.critic_warmup": 0}  # fmt: skip
    config = build.configure("default", "distrl", overrides)
    run = {"workdir": tmp_path / "run", "listen": "tcp://127.0.0.1:0", "insecure": False}
    with build.learner(config=config, seed=0, **run) as learner:
        before = jax.device_get(learner._trainer.state.params)
        learner.run(lambda: False)
        assert (learner.progress.phase, learner.progress.updates) == ("done", 1)
        after = jax.device_get(learner._trainer.state.params)
    changed = jax.tree.map(lambda a, b: not np.array_equal(a, b), before, after)
    assert any(jax.tree.leaves(changed))
