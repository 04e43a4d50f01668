"""Actors: `python launch/actor.py --emulator=emulator-6554 --learner=tcp://127.0.0.1:7000`."""

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
import shlex
import signal
import socket
import sys
import tempfile
import threading
import types
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import tyro

from actors.evaluators.config import JudgeConfig
from common.actions import ActionType
from common.errors import ConfigError, DistRLError
from launch import environment, fleet, one_thread

if TYPE_CHECKING:
    from actors.device.adb import AdbDevice
    from actors.device.emulator import Phone
    from actors.device.safety import Rules
    from actors.evaluators.verdict import Judge
    from actors.retries import Retries
    from actors.supervise import Supervisor

LATE_S = 1.5  # past the grace: for a compilation that holds the end up
CONFIRMED = pathlib.Path("~/.config/distrl/confirmed-phones")


@dataclasses.dataclass(frozen=True)
class Args(JudgeConfig):
    """Runs tasks on phones for a learner."""

    emulator: tyro.conf.UseAppendAction[tuple[str, ...]]
    """A running serial such as emulator-6554, host:port, `avd:NAME` to start an emulator, or
    `phone` to start a simulated one. Several may be given: each gets a process of its own."""
    copies: int = 1
    """How many of each to start, of `avd:NAME` and `phone`."""
    learner: str = "tcp://127.0.0.1:7000"
    """Where the learner listens."""
    keys: pathlib.Path | None = None
    """This actor's folder of keys, as launch/keys.py makes it, for a learner that has keys."""
    insecure: bool = False
    """Allows to talk to a learner on another machine without keys."""
    name: str = ""
    """Names this actor in the learner's records; its phone and machine if empty. Several actors
    are numbered."""
    seed: int = 0
    """Of tasks, phone layouts and samples; actors of one seed differ by name."""
    adb_port: int | None = None
    """Of the adb server; by default $ANDROID_ADB_SERVER_PORT, or 5037."""
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
    ready_timeout_s: float = 60.0
    """How long a phone may take to get ready."""
    failures_in_a_row: int = 5
    """With one more failure of its phone, without an episode in between, an actor ends."""
    failures_an_hour: int = 60
    """With one more failure of its phone within an hour, an actor ends."""
    confirm_phone: str = ""
    """Serial of a phone of a person that may be used from now on; said once."""
    deny_packages: tuple[str, ...] = ()
    """Apps that are left at once; on phones of people calls, messages and payments are denied."""
    allow_packages: tuple[str, ...] = ()
    """Apps that are not denied after all."""
    deny_actions: tuple[str, ...] = ()
    """Types of action that are not carried out, such as TYPE."""
    avd_program: str = "emulator"
    """The emulator program, or its path."""
    avd_snapshot: str = ""
    """Snapshot of the AVD to start from and to go back to between episodes; none if empty."""
    avd_relaunch_every: int = 200
    """Episodes after which an emulator is started anew; 0 for never."""
    avd_boot_timeout_s: float = 240.0
    """How long an emulator may take from its start to the first picture."""
    avd_flags: str = ""
    """More flags for the emulator program, as in "-gpu swiftshader_indirect"."""
    retries: pathlib.Path | None = None
    """Folder for episodes to be played again; actors of one machine and learner may share it."""
    metrics: pathlib.Path | None = None
    """JSON-lines file for the phone's health; several actors put their number before its suffix."""
    logs: pathlib.Path | None = None
    """Folder for the logs of several actors; a new temporary one by default."""
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
    _exit_on_signals(args.grace_s + LATE_S)
    try:
        _check(args)
        if len(args.emulator) * args.copies > 1:
            return fleet.run(args, environment.adb_port(args.adb_port))
        _run(args)
    except ConfigError as error:
        print(f"actor: {error}", file=sys.stderr)
        return 2
    except DistRLError as error:  # a phone or a learner that is gone for good
        print(f"actor: {error}", file=sys.stderr)
        return 1
    return 0


def _check(args: Args) -> None:
    for name in (
        "connect_timeout_s",
        "lost_timeout_s",
        "ready_timeout_s",
        "failures_in_a_row",
        "failures_an_hour",
        "avd_boot_timeout_s",
    ):
        if not getattr(args, name) > 0:
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} must be above 0, not {getattr(args, name)}.")
    if not 0 <= args.grace_s <= 3600:
        raise ConfigError(f"--grace-s must be in 0..3600, not {args.grace_s}.")
    if not args.emulator:
        raise ConfigError("Name a phone with --emulator; `phone` starts a simulated one.")
    if not 1 <= args.copies <= 64:
        raise ConfigError(f"--copies must be in 1..64, not {args.copies}.")
    attached = [e for e in args.emulator if e != "phone" and not e.startswith("avd:")]
    if args.copies > 1 and attached:
        raise ConfigError(f"--copies goes with phones that are started, not with {attached[0]!r}.")
    if len(set(attached)) < len(attached):
        raise ConfigError("--emulator names a phone twice; two actors would fight for it.")
    if args.avd_relaunch_every < 0:
        raise ConfigError("--avd-relaunch-every must be 0 or more.")
    if unknown := set(args.deny_actions) - set(ActionType):
        raise ConfigError(
            f"--deny-actions knows no {', '.join(sorted(unknown))}; "
            f"there are {', '.join(ActionType)}."
        )
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
    from actors.device import emulator
    from actors.device.avd import AvdOptions
    from actors.evaluators import build
    from actors.retries import Retries
    from actors.supervise import Budget, Supervisor

    (name,) = args.emulator
    options = AvdOptions(
        args.avd_program,
        args.avd_snapshot,
        args.avd_relaunch_every,
        args.avd_boot_timeout_s,
        tuple(shlex.split(args.avd_flags)),
    )
    with contextlib.ExitStack() as stack:
        built = stack.enter_context(build.opened(args, os.environ, forgiven=build.WAITED_OUT))
        phone = emulator.find(name, adb_port, args.ready_timeout_s, options)
        stack.callback(phone.close)
        supervisor = Supervisor(phone, Budget(args.failures_in_a_row, args.failures_an_hour))
        supervisor.bring_up()
        rules = _rules(args, phone.device)
        folder = args.retries
        if folder is None:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        # Alone, nobody else will play it.
        retries = Retries(folder) if args.retries else Retries(folder, patience_s=0.0)
        _act(args, phone, built.judge, supervisor, rules, retries)


def _rules(args: Args, device: AdbDevice) -> Rules:
    """Returns what is denied on a phone, after somebody said that it may be used at all."""
    from actors.device import safety

    safety.confirm(device, CONFIRMED.expanduser(), args.confirm_phone)
    is_personal = not safety.is_emulated(device)
    packages = {*args.deny_packages, *(safety.PERSONAL if is_personal else ())}
    return safety.Rules(
        frozenset(packages - set(args.allow_packages)),
        frozenset(map(ActionType, args.deny_actions)),
        keeps_data=is_personal,
    )


def _act(
    args: Args,
    phone: Phone,
    judge: Judge,
    supervisor: Supervisor,
    rules: Rules,
    retries: Retries,
) -> None:
    from actors.cache import Cache
    from actors.client import LearnerClient
    from actors.evaluators.background import Background
    from actors.loop import Actor, ActorConfig
    from actors.spool import Spool
    from actors.waiting import Waiting
    from common.keys import ActorKeys
    from common.metrics import MetricsWriter
    from common.models import vision

    device = phone.device
    config = ActorConfig(
        name=args.name or f"{device.serial}@{socket.gethostname()}",
        boot=uuid.uuid4().hex,
        seed=args.seed,
        connect_timeout_s=args.connect_timeout_s,
        lost_timeout_s=args.lost_timeout_s,
        settle_s=args.settle_s,
    )
    with contextlib.ExitStack() as stack:
        folder = re.sub(r"[^\w.@-]", "_", config.name)
        spools = args.spool or environment.state_folder() / "spool"
        spool = stack.enter_context(Spool(spools / folder, args.spool_mb * 2**20))
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
        stack.callback(client.close, timeout_s=args.grace_s)
        writer = stack.enter_context(MetricsWriter(args.metrics)) if args.metrics else None
        extractor = functools.partial(
            vision.extractor, folder=args.vision_folder, dtype=args.vision_dtype
        )
        waiting = None
        if isinstance(judge, Background):
            waiting = stack.enter_context(Waiting(args.waiting.expanduser() / folder))
        Actor(
            client,
            phone,
            judge,
            config,
            retries,
            supervisor=supervisor,
            rules=rules,
            writer=writer,
            extractor=extractor,
            waiting=waiting,
        ).run()


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
