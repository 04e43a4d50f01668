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
import signal
import socket
import sys
import threading
import time
import types
import uuid
from collections.abc import Sequence
from typing import Literal

import tyro

from actors.evaluators.config import JudgeConfig
from common.errors import ConfigError, DistRLError
from launch import environment, one_thread

SIGNAL_GRACE_S = 1.5


@dataclasses.dataclass(frozen=True)
class Args(JudgeConfig):
    """Runs tasks on one phone for a learner."""

    emulator: str
    """A running serial such as emulator-6554, host:port, or `phone` to start a simulated one."""
    learner: str = "tcp://127.0.0.1:7000"
    """Where the learner listens."""
    name: str = ""
    """Names this actor in the learner's records; its phone and machine if empty."""
    seed: int = 0
    """Of tasks, phone layouts and samples; actors of one seed differ by name."""
    adb_port: int | None = None
    """Of the adb server; by default $ANDROID_ADB_SERVER_PORT, or 5037."""
    connect_timeout_s: float = 60.0
    """How long to wait for a learner at the start."""
    lost_timeout_s: float = 120.0
    """How long to wait for a learner that went away."""
    settle_s: float | None = None
    """Wait between an action and its screenshot; by default what the kind of phone needs."""
    waiting: pathlib.Path = pathlib.Path("~/.cache/distrl/waiting")
    """Folder for episodes that a model could not judge yet; they are sent when it can."""
    vision_folder: pathlib.Path | None = None
    """Folder of BLIP-2 or of its vision model, for a learner's model that takes its features."""
    vision_dtype: Literal["float32", "bfloat16"] = "float32"
    """What it computes in; bfloat16 takes half the memory, but CPUs are slow at it."""


def main(argv: Sequence[str] | None = None) -> int:
    args = tyro.cli(Args, args=argv)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    _exit_on_signals()
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
    if not 0 <= args.seed < 2**31:
        raise ConfigError(f"--seed must be in 0..{2**31 - 1}, not {args.seed}.")
    if args.vision_folder is not None and not args.vision_folder.is_dir():
        raise ConfigError(f"--vision-folder {args.vision_folder} is not a folder.")
    if args.settle_s is not None and not 0 <= args.settle_s <= 60:
        raise ConfigError(f"--settle-s must be in 0..60, not {args.settle_s}.")


def _run(args: Args) -> None:
    adb_port = environment.adb_port(args.adb_port)
    one_thread.configure()  # before JAX is imported
    from actors.client import LearnerClient
    from actors.device import emulator
    from actors.evaluators import build
    from actors.evaluators.background import Background
    from actors.loop import Actor, ActorConfig
    from actors.waiting import Waiting
    from common.models import vision

    extractor = functools.partial(
        vision.extractor, folder=args.vision_folder, dtype=args.vision_dtype
    )
    with (
        build.opened(args, os.environ, forgiven=build.WAITED_OUT) as built,
        emulator.opened(args.emulator, adb_port) as device,
        contextlib.ExitStack() as stack,
    ):
        config = ActorConfig(
            name=args.name or f"{device.serial}@{socket.gethostname()}",
            boot=uuid.uuid4().hex,
            seed=args.seed,
            connect_timeout_s=args.connect_timeout_s,
            lost_timeout_s=args.lost_timeout_s,
            settle_s=args.settle_s,
        )
        waiting = None
        if isinstance(built.judge, Background):
            folder = args.waiting.expanduser() / config.name.replace("/", "_")
            waiting = stack.enter_context(Waiting(folder))
        client = LearnerClient(
            args.learner, config.name, config.boot, device.serial, device.simulated
        )
        try:
            Actor(client, device, built.judge, config, extractor, waiting).run()
        finally:
            client.close(timeout_s=1.0)


def _exit_on_signals() -> None:
    """Makes SIGTERM and SIGINT end this process in order, and soon.

    Python's handler raises SystemExit in the main thread, but only between two of its instructions:
    a compilation may hold it up for seconds. The wake-up descriptor is written to at once, and the
    thread behind it ends the process if it is still there when the grace is over.
    """

    def handle(number: int, frame: types.FrameType | None) -> None:
        del frame
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    def watch(reader: socket.socket, writer: socket.socket) -> None:
        number = reader.recv(1)[0]
        time.sleep(SIGNAL_GRACE_S)
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
