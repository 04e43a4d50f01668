"""An actor: `python launch/actor.py --emulator=emulator-6554 --learner=tcp://127.0.0.1:7000`."""

from __future__ import annotations

if __name__ == "__main__":
    import pathlib
    import sys

    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import contextlib
import dataclasses
import functools
import logging
import os
import pathlib
import re
import signal
import socket
import sys
import threading
import types
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import tyro

from common.errors import ConfigError, DistRLError
from launch import environment, one_thread

if TYPE_CHECKING:
    from actors.evaluators.verdict import Judge

LATE_S = 1.5  # past the grace: for a compilation that holds the end up


@dataclasses.dataclass(frozen=True)
class Args:
    """Runs tasks on one phone for a learner."""

    emulator: str
    """A running serial such as emulator-6554, host:port, or `phone` to start a simulated one."""
    learner: str = "tcp://127.0.0.1:7000"
    """Where the learner listens."""
    keys: pathlib.Path | None = None
    """This actor's folder of keys, as launch/keys.py makes it, for a learner that has keys."""
    insecure: bool = False
    """Allows to talk to a learner on another machine without keys."""
    name: str = ""
    """Names this actor in the learner's records; its phone and machine if empty."""
    seed: int = 0
    """Of tasks, phone layouts and samples; actors of one seed differ by name."""
    adb_port: int | None = None
    """Of the adb server; by default $ANDROID_ADB_SERVER_PORT, or 5037."""
    judge: Literal["state", "gemini"] = "state"
    """Who says that a task is done; `gemini` takes its key from GEMINI_API_KEY."""
    judge_model: str = ""
    """Model of the gemini judge, if not its default."""
    connect_timeout_s: float = 60.0
    """How long to wait for a learner at the start."""
    lost_timeout_s: float = 120.0
    """How long to wait for a learner that went away."""
    grace_s: float = 3.0
    """After SIGTERM: time to deliver the episodes that are finished; the one being played is given
    up. A second signal ends the actor at once."""
    spool: pathlib.Path | None = None
    """Where episodes wait for the learner, in a folder of the actor's name; by default distrl/spool
    in $XDG_STATE_HOME or ~/.local/state."""
    spool_mb: int = 1024
    """How much may wait there; when it is full, the actor stops playing."""
    settle_s: float | None = None
    """Wait between an action and its screenshot; by default what the kind of phone needs."""
    cache: pathlib.Path | None = None
    """Folder of parameters on a local disk, which the actors of this host share; by default
    distrl/parameters in $XDG_CACHE_HOME or ~/.cache."""
    vision_folder: pathlib.Path | None = None
    """Folder of BLIP-2 or of its vision model, for a learner's model that takes its features."""
    vision_dtype: Literal["float32", "bfloat16"] = "float32"
    """What it computes in; bfloat16 takes half the memory, but CPUs are slow at it."""


def main(argv: Sequence[str] | None = None) -> int:
    args = tyro.cli(Args, args=argv)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    _exit_on_signals(args.grace_s + LATE_S)
    try:
        _check(args)
        _run(args)
    except ConfigError as error:
        print(f"actor: {error}", file=sys.stderr)
        return 2
    except DistRLError as error:  # a phone or a learner that is gone for good
        print(f"actor: {error}", file=sys.stderr)
        return 1
    return 0


def _check(args: Args) -> None:
    for name in ("connect_timeout_s", "lost_timeout_s"):
        if not getattr(args, name) > 0:
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} must be above 0, not {getattr(args, name)}.")
    if not 0 <= args.grace_s <= 3600:
        raise ConfigError(f"--grace-s must be in 0..3600, not {args.grace_s}.")
    if not 0 <= args.seed < 2**31:
        raise ConfigError(f"--seed must be in 0..{2**31 - 1}, not {args.seed}.")
    if args.spool_mb < 1:
        raise ConfigError(f"--spool-mb must be 1 or more, not {args.spool_mb}.")
    if args.vision_folder is not None and not args.vision_folder.is_dir():
        raise ConfigError(f"--vision-folder {args.vision_folder} is not a folder.")
    if args.settle_s is not None and not 0 <= args.settle_s <= 60:
        raise ConfigError(f"--settle-s must be in 0..60, not {args.settle_s}.")


def _run(args: Args) -> None:
    adb_port = environment.adb_port(args.adb_port)
    one_thread.configure()  # before JAX is imported
    from actors.cache import Cache
    from actors.client import LearnerClient
    from actors.device import emulator
    from actors.loop import Actor, ActorConfig
    from actors.spool import Spool
    from common.keys import ActorKeys
    from common.models import vision

    extractor = functools.partial(
        vision.extractor, folder=args.vision_folder, dtype=args.vision_dtype
    )
    judge = make_judge(args.judge, args.judge_model, os.environ)
    with emulator.opened(args.emulator, adb_port) as device:
        config = ActorConfig(
            name=args.name or f"{device.serial}@{socket.gethostname()}",
            boot=uuid.uuid4().hex,
            seed=args.seed,
            connect_timeout_s=args.connect_timeout_s,
            lost_timeout_s=args.lost_timeout_s,
            settle_s=args.settle_s,
        )
        state = pathlib.Path(os.environ.get("XDG_STATE_HOME", "~/.local/state")).expanduser()
        spools = args.spool or state / "distrl" / "spool"
        folder = spools / re.sub(r"[^\w.@-]", "_", config.name)
        with Spool(folder, args.spool_mb * 2**20) as spool:
            client = LearnerClient(
                args.learner,
                config.name,
                config.boot,
                device.serial,
                device.simulated,
                spool,
                Cache(args.cache or environment.cache_folder() / "parameters"),
                args.insecure,
                ActorKeys.load(args.keys) if args.keys else None,
            )
            try:
                Actor(client, device, judge, config, extractor).run()
            finally:
                client.close(args.grace_s)


def make_judge(kind: str, model: str, variables: Mapping[str, str]) -> Judge:
    """Returns the judge of that kind; ConfigError if it can't be used."""
    if kind == "state":
        from actors.evaluators.state import StateJudge

        return StateJudge()
    from actors.evaluators.gemini import DEFAULT_MODEL, GeminiJudge

    key = variables.get("GEMINI_API_KEY", "")
    if not key:
        raise ConfigError("The gemini judge needs a key: set GEMINI_API_KEY.")
    return GeminiJudge(key, model or DEFAULT_MODEL)


def _exit_on_signals(grace_s: float) -> None:
    """Makes the first SIGTERM or SIGINT end this process in order, and soon, and a second at once.

    Python's handler raises SystemExit in the main thread, but only between two of its instructions:
    a compilation may hold it up for seconds. The wake-up descriptor is written to at once, and the
    thread behind it ends the process if it is still there when the grace is over.
    """
    ending = False

    def handle(number: int, frame: types.FrameType | None) -> None:
        nonlocal ending
        del frame
        if not ending:
            ending = True
            raise SystemExit(128 + number)

    def watch(reader: socket.socket, writer: socket.socket) -> None:
        number = reader.recv(1)[0]
        reader.settimeout(grace_s)
        with contextlib.suppress(TimeoutError):
            reader.recv(1)
        writer.close()
        os._exit(128 + number)

    ends = socket.socketpair()
    ends[1].setblocking(False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    signal.set_wakeup_fd(ends[1].fileno())
    threading.Thread(target=watch, args=ends, name="end", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
