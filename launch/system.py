"""The processes of one run on this machine, and the order in which they come and go."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from actors.device.server import AdbServer, Channel, private_server
from common import channel, errors, ports
from launch import summary
from launch.display import Display, View
from launch.processes import Program, State, Supervisor, tail

LAUNCHERS = pathlib.Path(__file__).resolve().parent
LEARNER_RESTARTS = 1  # from its checkpoint
ACTOR_RESTARTS = 3
CONNECT_TIMEOUT_S = 120  # the learner compiles before it listens
LEARNER_GRACE_S = 300.0  # past its minutes: its start and its last checkpoint
EVALUATION_TIMEOUT_S = 1200.0
POLL_S = 1.0
NICE = 5  # of actors and phones: on few cores the learner is what success waits for
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}  # a log shows what happens when it happens
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # gradient steps on a CPU: 0.66x the time


@dataclasses.dataclass(frozen=True)
class LocalConfig:
    """Trains an agent on simulated phones on this machine, and evaluates it."""

    seed: int = 0
    """Of everything that is drawn: model, tasks, layouts, actions."""
    workdir: pathlib.Path | None = None
    """Run folder; a run that was interrupted goes on. Default: runs/local-<time>."""
    actors: int = 2
    """Actors, each with a phone of its own."""
    minutes: float = 8.5
    """Longest time for demonstrations, warm start and online learning together."""
    learner_flags: str = ""
    """Further flags of launch/learner.py, as in "--algorithm filtered-bc --episodes 500"."""
    evaluation_episodes: int = 182
    """Held-out episodes for each checkpoint, as many sampled as greedy."""

    def check(self) -> None:
        """Raises ConfigError for a value out of range."""
        for name, low, high in (
            ("seed", 0, 2**31 - 1),
            ("actors", 1, 32),
            ("minutes", 0.1, 10_000),
            ("evaluation_episodes", 1, 100_000),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                flag = name.replace("_", "-")
                raise errors.ConfigError(f"--{flag} must be in {low}..{high}, not {value}.")


class LocalSystem:
    """The processes of one run and what is known of them."""

    def __init__(
        self,
        config: LocalConfig,
        workdir: pathlib.Path,
        display: Display,
        launchers: pathlib.Path = LAUNCHERS,
    ):
        self._config, self._workdir = config, workdir
        self._display, self._launchers = display, launchers
        self._supervisor = Supervisor(workdir / "logs")
        self._adb = AdbServer(port=ports.free_port())
        self._learner = f"tcp://127.0.0.1:{ports.free_port(2)}"  # the next serves parameters
        self._phones = max(config.actors, 2)  # two checkpoints are evaluated side by side
        self._serials: list[str] = []
        self._phase = "start"
        self._status: dict[str, Any] = {}
        self._asked = self._began = time.monotonic()

    def close(self) -> None:
        """Ends all processes."""
        try:
            self._supervisor.close()
        finally:
            _end_adb(self._adb)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self) -> dict[str, Any]:
        """Goes through the whole run and returns its summary."""
        self._start_devices()
        self._train()
        record = json.loads((self._workdir / "learner.json").read_text())
        if not record["finished"]:
            raise errors.DistRLError(
                f"The learner was stopped before it was done; go on with --workdir {self._workdir}."
            )
        scores = self._evaluate({name: record[f"{name}_step"] for name in summary.CHECKPOINTS})
        return {
            "seed": self._config.seed,
            "actors": self._config.actors,
            "wall_s": round(time.monotonic() - self._began, 1),
            "episodes": record["episodes"],
            "updates": record["updates"],
            **scores,
        }

    def _start_devices(self) -> None:
        home, server = self._workdir / "adb", self._adb
        home.mkdir(exist_ok=True)
        command, environment = private_server(server.port, home)
        self._supervisor.start(Program("adb", command, environment, service=True))
        self._wait(lambda: _devices(server) is not None, 20, "The start of the adb server")

        first, count = ports.phone_port(self._phones), self._phones
        self._serials = [f"emulator-{first - 1 + 2 * i}" for i in range(count)]
        options = {"port": first, "count": count, "adb-port": self._adb.port}
        self._start("phone", "phones", options, UNBUFFERED, service=True, nice=NICE)
        expected = dict.fromkeys(self._serials, "device")
        self._wait(lambda: (_devices(server) or {}).items() >= expected.items(), 60, "Their start")

    def _train(self) -> None:
        """Runs learner and actors until the learner is done; it tells the actors to stop."""
        config, learner = self._config, self._learner
        options = {"workdir": self._workdir, "listen": learner, "seed": config.seed}
        options |= {"preset": "quick", "minutes": config.minutes}
        more = shlex.split(config.learner_flags)
        environment = UNBUFFERED | HUGE_PAGES
        self._start("learner", "learner", options, environment, LEARNER_RESTARTS, more=more)
        names = [f"actor-{i}" for i in range(config.actors)]
        for i, name in enumerate(names):
            options = {"emulator": self._serials[i], "learner": learner, "name": name}
            options |= {"seed": config.seed * 1000 + i, "adb-port": self._adb.port}
            options |= {"connect-timeout-s": CONNECT_TIMEOUT_S}
            self._start("actor", name, options, UNBUFFERED, ACTOR_RESTARTS, nice=NICE)
        limit_s = config.minutes * 60 + LEARNER_GRACE_S
        self._wait(lambda: self._finished("learner"), limit_s, "Training")
        self._supervisor.stop(names)

    def _evaluate(self, steps: dict[str, int | None]) -> dict[str, Any]:
        """Evaluates checkpoints side by side, each on a phone of its own."""
        self._phase, folder = "evaluation", self._workdir / "eval"
        folder.mkdir(exist_ok=True)
        outputs = {
            name: folder / f"{name}.json" for name, step in steps.items() if step is not None
        }
        for serial, (name, output) in zip(self._serials, outputs.items(), strict=False):
            options = {
                "checkpoint": self._workdir / "checkpoints" / str(steps[name]),
                "emulator": serial,
                "tasks": "all-test",
                "episodes": self._config.evaluation_episodes,
                "output": output,
                "adb-port": self._adb.port,
                "seed": self._config.seed,
            }
            self._start("evaluate", f"evaluate-{name}", options, UNBUFFERED, restarts=1)
        self._wait(
            lambda: all(self._finished(f"evaluate-{name}") for name in outputs),
            EVALUATION_TIMEOUT_S,
            "Evaluation",
        )
        return {name: summary.evaluation(output) for name, output in outputs.items()}

    def _start(
        self,
        launcher: str,
        name: str,
        options: dict[str, Any],
        environment: dict[str, str],
        restarts: int = 0,
        service: bool = False,
        more: Sequence[str] = (),
        nice: int = 0,
    ) -> None:
        words = [f"--{key}={value}" for key, value in options.items()]
        command = [sys.executable, str(self._launchers / f"{launcher}.py"), *words, *more]
        self._supervisor.start(Program(name, command, environment, restarts, service, nice))

    def _wait(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Waits with an eye on the processes; raises DistRLError when it takes too long."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise errors.DistRLError(f"{what} took over {timeout_s:.0f} s; see the logs.")
            self._supervisor.check()
            self._ask()
            self._display.show(self._view())
            time.sleep(0.1)

    def _ask(self) -> None:
        """Asks the learner for its status once a second; an answer is shown until the next."""
        now, states = time.monotonic(), self._supervisor.states()
        if now - self._asked >= POLL_S and states.get("learner") is State.RUNNING:
            self._asked = now
            self._status = channel.ask_status(self._learner, timeout_s=0.3) or self._status

    def _view(self) -> View:
        elapsed_s = time.monotonic() - self._began
        if self._phase == "evaluation":
            return View(self._phase, elapsed_s, None, {}, self._processes())
        learner = self._status.get("learner", {})
        left_s = left(self._config.minutes * 60, learner) if learner else None
        phase = learner.get("phase", self._phase)
        return View(phase, elapsed_s, left_s, learner, self._processes())

    def _processes(self) -> dict[str, tuple[str, str]]:
        """Returns state and details of each process: its own words where there are any."""
        shown: dict[str, tuple[str, str]] = {}
        actors = self._status.get("actors", {})
        for name, state in self._supervisor.states().items():
            if state is not State.RUNNING:
                shown[name] = (state, "")
            elif name in actors:
                shown[name] = (actors[name]["state"], actors[name]["detail"])
            elif name.startswith("evaluate-"):
                shown[name] = (state, tail(self._supervisor.log_path(name), 1))
            else:
                shown[name] = (state, "")
        return shown

    def _finished(self, name: str) -> bool:
        return self._supervisor.state(name) is State.FINISHED


def left(limit_s: float, learner: Mapping[str, Any]) -> float:
    """Returns for how long the learner will go on at most.

    Args:
      limit_s: Its wall time in all.
      learner: Its status.
    """
    left_s = limit_s - learner["elapsed_s"]
    if learner["phase"] == "reinforce" and learner["episodes_per_s"] > 0:
        missing = learner["target_episodes"] - learner["episodes"]
        left_s = min(left_s, missing / learner["episodes_per_s"])
    return left_s


def _devices(server: AdbServer) -> dict[str, str] | None:
    """Returns the devices that an adb server knows, or None if it does not answer."""
    try:
        return server.devices()
    except errors.DeviceError:
        return None


def _end_adb(server: AdbServer) -> None:
    """Ends an adb server, if there is one: a client that found none may have started another."""
    try:
        with Channel(server, "host:kill", timeout_s=2.0) as connection:
            connection.request("host:kill")
    except errors.DeviceError:
        pass  # none is left, as it should be
