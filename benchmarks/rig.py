"""Simulated phones behind a private adb server, and actors in threads that play on them.

The actors are those of `actors.loop` with everything that decides how long an episode takes; only
the policy is replaced by one of a fixed cost, and the learner by a count.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from actors.device.emulator import Phone
from actors.device.server import private_server
from actors.environment import Observation, PhoneEnvironment
from actors.evaluators.state import StateJudge
from actors.loop import Actor, ActorConfig
from actors.policy import Decision
from actors.retries import Retries
from actors.rollout import Move
from actors.supervise import Budget, Supervisor
from common import actions, ports
from common.actions import Action, ActionType
from common.channel import Mode, Pulse
from common.guard import guarded
from common.tasks import Check, Task, TaskSampler
from common.types import Episode, Version

ROOT = pathlib.Path(__file__).resolve().parents[1]
START_S = 30.0
END_SHARE = 0.1  # of the steps in which the policy says that it is done
HORIZON = {"general": 15}
TASKS = tuple(
    Task(f"never-{i}", "What can't be done", (Check("getprop x", "^y$"),), suite="general")
    for i in range(8)
)


@contextlib.contextmanager
def phones(count: int, *flags: str) -> Iterator[tuple[int, list[str], int]]:
    """Yields the adb server's port, the serials and the phones' process id."""
    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as stack:
        port = ports.free_port()
        command, private = private_server(port, pathlib.Path(home))
        environment = os.environ | private
        quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        server = subprocess.Popen(
            guarded(command), env=environment, stdout=subprocess.DEVNULL, **quiet
        )
        stack.callback(_end, server)
        first = ports.phone_port(count)
        options = ["--port", str(first), "--count", str(count), "--adb-port", str(port), *flags]
        launcher = [sys.executable, str(ROOT / "launch" / "phone.py"), *options]
        process = subprocess.Popen(guarded(launcher), stdout=subprocess.PIPE, text=True, **quiet)
        stack.callback(_end, process)
        assert process.stdout is not None
        ready, *serials = process.stdout.readline().split()
        assert ready == "ready"
        yield port, serials, process.pid


def _end(process: subprocess.Popen) -> None:
    process.terminate()
    process.wait(START_S)
    if process.stdout is not None:
        process.stdout.close()


class Learner:
    """Counts episodes, and has new parameters whenever as many came as there are actors."""

    def __init__(self, actors: int):
        self._actors = actors
        self._lock = threading.Lock()
        self.version = 0
        self.mode = Mode.EXPLORE
        self.arrivals: list[float] = []
        self.rounds: list[float] = []  # when each version's last episode came

    def take(self, episode: Episode) -> None:
        del episode
        with self._lock:
            self.arrivals.append(time.monotonic())
            if len(self.arrivals) % self._actors == 0:
                self.rounds.append(self.arrivals[-1])
                self.version += 1


class Client:
    """One actor's end of it, as `actors.client.LearnerClient`."""

    lost_s = 0.0
    waiting = 0
    task_weights = None
    welcome = SimpleNamespace(config_id="fixed")

    def __init__(self, learner: Learner):
        self._learner = learner

    @property
    def pulse(self) -> Pulse:
        version = Version(0, self._learner.version)
        return Pulse("run", "life", version, self._learner.mode, "fixed")

    def connect(self, timeout_s: float) -> None:
        pass

    def poll(self, timeout_s: float = 0.0) -> None:
        if timeout_s:
            time.sleep(min(timeout_s, 0.005))

    def heartbeat(self, state: str, detail: str = "") -> None:
        pass

    def fetch(self, known: Version | None) -> tuple[Version, dict[str, Any]]:
        return Version(0, self._learner.version), {}

    def send(self, episode: Episode) -> bool:
        self._learner.take(episode)
        return True


class Walker:
    """Acts at random at a fixed cost."""

    source = "policy"

    def __init__(self, seed: int, cost_s: float):
        self._random = random.Random(seed)
        self._cost_s = cost_s

    def begin(self, task: Task, seed: int) -> None:
        del task, seed

    def act(self, observation: Observation) -> Move:
        del observation
        time.sleep(self._cost_s)
        ids, pixels, numbers = np.zeros(1, np.int32), np.zeros(1, np.uint8), np.zeros(1, np.float32)
        text = actions.render(self._draw())
        return Move(text, Decision(text, ids, pixels, ids, numbers, 0))

    def _draw(self) -> Action:
        draw = self._random.random()
        if draw < END_SHARE:
            return Action(ActionType.STATUS_TASK_COMPLETE)
        if draw < 0.3:
            return Action(self._random.choice((ActionType.PRESS_HOME, ActionType.PRESS_BACK)))
        if draw < 0.35:
            return Action(ActionType.TYPE, text="weather")
        point = self._random.uniform(0.1, 0.9), self._random.uniform(0.1, 0.9)
        return Action(ActionType.DUAL_POINT, point, point)


class ThreadActor(Actor):
    """An actor without a model. `run` is what a thread is to run."""

    def __init__(
        self,
        index: int,
        phone: Phone,
        learner: Learner,
        retries: Retries,
        cost_s: float,
        synchronous: bool,
        budget: Budget,
    ):
        self.owner = phone
        super().__init__(
            Client(learner),  # type: ignore[arg-type]
            phone,
            StateJudge(),
            ActorConfig(f"actor-{index}", "boot", synchronous=synchronous),
            retries,
            supervisor=Supervisor(phone, budget),
        )
        self._cost_s = cost_s
        self._index = index
        self.error: Exception | None = None

    def _open(self) -> Any:
        layouts = random.Random(self._index)
        phone = self.owner
        restore = (lambda: phone.restore(self._wait)) if phone.restores else None
        session = SimpleNamespace(
            config_id="fixed",
            settings=SimpleNamespace(sampling=SimpleNamespace(temperature=1.0)),
            tasks={task.id: task for task in TASKS},
            environment=PhoneEnvironment(phone.device, StateJudge(), HORIZON, restore=restore),
            explorer=Walker(self._index, self._cost_s),
            expert=None,
            extract=None,
            version=None,
            sampler=TaskSampler(TASKS, self._index),
            next_layout=lambda: layouts.randrange(10**6),
            keeps_screens=lambda seq: False,
        )

        def use(version: Version, params: dict[str, Any]) -> None:
            session.version = version

        session.use = use
        return session


def started(actors: list[ThreadActor], on_error: Callable[[], None]) -> list[threading.Thread]:
    """Runs each actor in a thread; an error is kept in its `error`."""

    def work(actor: ThreadActor) -> None:
        try:
            actor.run()
        except Exception as error:  # noqa: BLE001 - told by whoever joins the thread
            actor.error = error
            on_error()

    threads = [threading.Thread(target=work, args=(actor,), daemon=True) for actor in actors]
    for thread in threads:
        thread.start()
    return threads
