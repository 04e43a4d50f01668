"""Phone, actor and learner as processes on loopback, small enough for a test; kills included."""

import dataclasses
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from common import channel, ports
from common.models import autoui
from common.models.distribution import FREE
from common.models.text import Tokenizer, grammar_corpus
from common.tasks import load_tasks
from learner.checkpoint import load_policy, save_policy

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
SMALL = {
    "warm_start.begin": 4,
    "warm_start.max_updates": 6,
    "warm_start.publish_every": 2,
    "warm_start.batch": 8,
    "reinforce.warmup_episodes": 3,
    "reinforce.batch_steps": 32,
    "reinforce.critic_steps": 32,
    "reinforce.critic_updates": 1,
    "reinforce.critic_warmup": 1,
    "reinforce.publish_every": 1,
    "reinforce.max_uses": 8.0,
    "checkpoint_every_s": 2.0,
    "screens_every": 1,
}


class System:
    """One run's processes; their logs are in the folder."""

    def __init__(self, folder, adb_server, serials):
        self.workdir = folder / "run"
        self._folder, self._adb_server, self._serials = folder, adb_server, serials
        self.address = f"tcp://127.0.0.1:{ports.free_port(2)}"
        self.processes = {}

    def start(self, name, *words):
        command = [sys.executable, str(REPOSITORY / "launch" / words[0]), *map(str, words[1:])]
        environment = self._adb_server.environment | {"JAX_PLATFORMS": "cpu"}
        with (self._folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._folder, env=environment
            )

    def start_learner(self, episodes, *more):
        sets = [word for name, value in SMALL.items() for word in ("--set", name, value)]
        self.start(
            "learner", "learner.py", "--workdir", self.workdir, "--listen", self.address,
            "--algorithm", "distrl", "--demonstrations", 6, "--episodes", episodes,
            "--threads", 1, *sets, *more,
        )  # fmt: skip

    def start_actor(self, number, *more):
        self.start(
            f"actor-{number}", "actor.py", f"--emulator={self._serials[number]}",
            f"--learner={self.address}", "--name", f"actor-{number}",
            "--adb-port", self._adb_server.port, "--connect-timeout-s", 120, *more,
        )  # fmt: skip

    def status(self):
        """Returns the learner's status, or empty dicts while it does not answer."""
        return channel.ask_status(self.address, timeout_s=0.5) or {"learner": {}, "actors": {}}

    def wait(self, condition, what, timeout_s=120.0):
        deadline = time.monotonic() + timeout_s
        while not condition(status := self.status()):
            ended = {n: p.returncode for n, p in self.processes.items() if p.poll() is not None}
            logs = "".join(path.read_text()[-2000:] for path in self._folder.glob("*.log"))
            assert time.monotonic() < deadline, f"waited for {what}: {status}, {ended}\n{logs}"
            time.sleep(0.2)
        return status

    def kill(self, name):
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def system(tmp_path, adb_server, serve_phones):
    with serve_phones(2) as phones:
        system = System(tmp_path, adb_server, phones.serials)
        yield system
        system.close()


def reinforced(status, episodes):
    return status["learner"].get("episodes", 0) >= episodes


def test_a_run_survives_the_death_of_an_actor_and_of_the_learner(system):
    system.start_actor(0)  # before the learner
    system.start_learner(episodes=100_000)
    system.wait(lambda s: reinforced(s, 4), "episodes of the policy")

    system.kill("actor-0")
    system.start_actor(0)
    system.start_actor(1)  # joins late
    seen = system.status()["learner"]["episodes"]
    both = system.wait(
        lambda s: reinforced(s, seen + 4) and len(s["actors"]) == 2 and all(
            actor["episodes"] > 0 for actor in s["actors"].values()
        ),
        "episodes of both actors",
    )  # fmt: skip
    assert both["learner"]["version"] > 3
    assert not any(name.startswith("refused") for name in both["counters"])

    checkpoints = system.workdir / "checkpoints"
    system.wait(lambda s: latest(checkpoints) > 6, "a checkpoint of this phase")
    system.kill("learner")
    before = load_policy(checkpoints)[1]["progress"]
    system.start_learner(episodes=before["episodes"] + 8)
    assert system.processes["learner"].wait(timeout=180) == 0
    assert all(system.processes[f"actor-{i}"].wait(timeout=20) == 0 for i in range(2))

    record = json.loads((system.workdir / "learner.json").read_text())
    assert record["finished"]
    assert record["lineage"] == before["lineage"] + 1
    assert record["version"] > before["version"]
    assert record["episodes"] >= before["episodes"] + 8
    assert record["updates"] > before["updates"]
    check_records(system.workdir)


@pytest.mark.slow
def test_a_run_with_adapters_the_policy_s_own_critic_and_features_of_blip2(system, tmp_path):
    """A policy from elsewhere in its thin form: what is large about it is only its size."""
    model = dataclasses.replace(
        autoui.PRESETS["tiny"], vocab_size=640, image_grid=None, image_tokens=1, image_dim=32,
        action_length=40,
    )  # fmt: skip
    goals = [task.goal for task in load_tasks("all-train")]
    tokenizer = Tokenizer.train([*grammar_corpus(), *goals], model.vocab_size)
    start = tmp_path / "start"
    meta = {
        "model": model.to_dict(),
        "tokenizer": tokenizer.to_json(),
        "horizon": {"general": 4, "webshop": 4},
        "sampling": dataclasses.asdict(FREE),
    }
    params = autoui.init(model, jax.random.key(0))
    save_policy(start, params, meta)
    changes = {"update.lora.rank": 2, "update.critic.kind": "t5", "sampling.grammar": "true"}
    sets = [word for name, value in changes.items() for word in ("--set", name, value)]
    system.start_actor(0, "--vision-folder", REPOSITORY / "tests" / "golden" / "blip2_vision")
    system.start_learner(8, "--init", start, *sets)
    assert system.processes["learner"].wait(timeout=100) == 0
    assert system.processes["actor-0"].wait(timeout=20) == 0
    check_records(system.workdir)
    learned, saved = load_policy(system.workdir / "checkpoints")
    assert saved["lora"]["rank"] == 2 and saved["progress"]["version"] > 3

    def moved(*path):
        before, after = (functools.reduce(dict.__getitem__, path, p) for p in (params, learned))
        return not np.array_equal(before, after)

    assert moved("fusion", "v", "kernel") and not moved("t5", "embedding")


def latest(checkpoints):
    steps = [int(p.name) for p in checkpoints.glob("*") if p.name.isdecimal()]
    return max(steps, default=0)


def check_records(workdir):
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    for name in ("loss/imitation", "loss/policy", "loss/critic", "policy/entropy_nats"):
        values = [row[name] for row in rows if name in row]
        assert values, f"{name} was never written"
        assert None not in values, f"{name} was not finite"
    lines = (workdir / "episodes" / "episodes.jsonl").read_text().splitlines()
    episodes = [json.loads(line) for line in lines]
    assert {episode["source"] for episode in episodes} == {"expert", "policy"}
    names = [episode["episode"] for episode in episodes]
    assert len(set(names)) == len(names)  # none was delivered twice
    shown = next(workdir.glob("episodes/*/episode.json")).parent
    assert len(list(shown.glob("*.png"))) == len(json.loads(
        (shown / "episode.json").read_text())["steps"])  # fmt: skip


def test_the_learner_names_what_is_wrong_with_its_settings(tmp_path):
    for words, sentence in (
        (["--set", "update.lambda_", "2"], "gamma and lambda_ must be in 0..1"),
        (["--set", "reinforce.batch", "2"], "There is no setting reinforce.batch"),
        (["--tasks", "nowhere.yaml"], "There are no tasks 'nowhere.yaml'"),
        (["--listen", "tcp://0.0.0.0:7000"], "can be reached from other machines"),
        (["--listen", "localhost"], "is not an address of the form tcp://host:port"),
    ):
        command = [sys.executable, str(REPOSITORY / "launch" / "learner.py"), "--workdir",
                   str(tmp_path / "run"), *words]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr
