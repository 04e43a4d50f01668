"""Recorded episodes: `python launch/data.py collect recorded --episodes 200`; docs/data.md."""

from __future__ import annotations

if __name__ == "__main__":
    import pathlib
    import sys

    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import collections
import dataclasses
import json
import logging
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import tyro

from common.errors import ConfigError, DistRLError
from launch import environment

Folder = tyro.conf.Positional[pathlib.Path]


@dataclasses.dataclass(frozen=True)
class Collect:
    """Plays tasks on a phone and records the episodes: of the scripted expert, or of a policy."""

    output: Folder
    """The folder of the episodes; more can be added to one of the same model."""
    checkpoint: pathlib.Path | None = None
    """A run's `checkpoints` folder or a step in it: its policy acts, or lends the expert's episodes
    its tokenizer. Without one, the expert records for the tiny model with a fresh tokenizer."""
    agent: Literal["auto", "policy", "expert"] = "auto"
    """Who acts; by default the policy if there is a checkpoint, else the expert."""
    emulator: str = "phone"
    """A running serial such as emulator-6554, host:port, or `phone` to start a simulated one."""
    tasks: str = "all-train"
    """A suite such as general-train, or a YAML file of tasks."""
    episodes: int = 100
    """Episodes to record."""
    screens: bool = False
    """Keeps the screens too."""
    epsilon: float = 0.1
    """Share of the expert's steps that are disturbed, and not recorded."""
    vocab_size: int = 1600
    """Of a fresh tokenizer."""
    vision_folder: pathlib.Path | None = None
    """Folder of BLIP-2 or of its vision model, for a checkpoint that takes its features."""
    seed: int = 0
    """Of tasks, phone layouts and samples."""
    adb_port: int | None = None
    """Of the adb server; by default $ANDROID_ADB_SERVER_PORT, or 5037."""


@dataclasses.dataclass(frozen=True)
class Inspect:
    """Shows what a folder holds, an episode a line, or one episode in full."""

    folder: Folder
    """Of recorded episodes."""
    episode: int | None = None
    """Number of the one to show with all its steps."""
    most: int = 20
    """Episodes to list."""


@dataclasses.dataclass(frozen=True)
class Validate:
    """Reads every record and screen; says what is damaged, and then exits with code 1."""

    folder: Folder
    """Of recorded episodes."""


@dataclasses.dataclass(frozen=True)
class Stats:
    """Prints numbers of a folder as JSON: episodes, success by source and family, endings."""

    folder: Folder
    """Of recorded episodes."""


@dataclasses.dataclass(frozen=True)
class Merge:
    """Copies episodes of folders of one model into another, each episode once."""

    output: Folder
    """A new folder, or one of the same model to add to."""
    folders: tyro.conf.Positional[tuple[pathlib.Path, ...]]
    """What to merge; screens come along."""


@dataclasses.dataclass(frozen=True)
class Export:
    """Writes texts, rewards and screens' paths as JSON, an episode a line; - is the terminal."""

    folder: Folder
    """Of recorded episodes."""
    output: tyro.conf.Positional[pathlib.Path]
    """The file."""


@dataclasses.dataclass(frozen=True)
class Import:
    """Records the trajectories of other projects' files.

    `digirl-pt`: the lists that DigiRL and DistRL write with torch.save, read without running code
    of theirs; a file that holds anything but texts, numbers, arrays and tensors is refused.
    """

    kind: tyro.conf.Positional[Literal["digirl-pt"]]
    """What the file is."""
    file: Folder
    """The file, such as trajectories.pt."""
    output: pathlib.Path
    """The folder of the episodes."""
    model: pathlib.Path
    """A checkpoint of the model that is to learn from them, as launch/convert.py makes one."""
    suite: Literal["general", "webshop"] = "general"
    """Which horizon goes for them."""


Command = Collect | Inspect | Validate | Stats | Merge | Export | Import
Commands = (
    Annotated[Collect, tyro.conf.subcommand("collect")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Validate, tyro.conf.subcommand("validate")]
    | Annotated[Stats, tyro.conf.subcommand("stats")]
    | Annotated[Merge, tyro.conf.subcommand("merge")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Import, tyro.conf.subcommand("import")]
)


def main(argv: Sequence[str] | None = None) -> int:
    command: Command = tyro.cli(Commands, args=argv, description=__doc__)
    logging.basicConfig(level=logging.WARNING, format="data: %(message)s")
    # Orbax warns of handlers that it finds by itself.
    logging.getLogger("absl").setLevel(logging.ERROR)
    run: dict[type, Callable[[Any], int]] = {
        Collect: _collect,
        Inspect: _inspect,
        Validate: _validate,
        Stats: _stats,
        Merge: _merge,
        Export: _export,
        Import: _import,
    }
    try:
        return run[type(command)](command)
    except ConfigError as error:
        print(f"data: {error}", file=sys.stderr)
        return 2
    except DistRLError as error:  # a phone that is gone for good
        print(f"data: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `| head` has seen enough
        sys.stderr.close()
        return 0


def _collect(args: Collect) -> int:
    from launch import collecting

    if args.agent == "policy" and args.checkpoint is None:
        raise ConfigError("--agent policy needs a --checkpoint.")
    if args.episodes < 1 or not 0 <= args.epsilon < 1 or not 0 <= args.seed < 2**31:
        raise ConfigError("--episodes is 1 or more, --epsilon in [0, 1), --seed in [0, 2**31).")
    expert = args.agent == "expert" or (args.agent == "auto" and args.checkpoint is None)
    plan = collecting.Plan(
        output=args.output,
        checkpoint=args.checkpoint,
        expert=expert,
        emulator=args.emulator,
        tasks=args.tasks,
        episodes=args.episodes,
        screens=args.screens,
        epsilon=args.epsilon,
        vocab_size=args.vocab_size,
        vision_folder=args.vision_folder,
        seed=args.seed,
        adb_port=environment.adb_port(args.adb_port),
    )
    written = collecting.collect(plan)
    print(f"Wrote {written} episodes to {args.output}.")
    return 0


def _inspect(args: Inspect) -> int:
    from learner import dataset_tools
    from learner.dataset import Dataset

    dataset = Dataset(args.folder)
    if args.episode is not None:
        record = next((r for n, r in enumerate(dataset) if n == args.episode), None)
        if record is None:
            raise ConfigError(f"{args.folder} holds no episode {args.episode}.")
        print(json.dumps(dataset_tools.plain(record), indent=1))
        return 0
    print(f"{args.folder}: {dataset.spec}")
    for number, record in enumerate(dataset):
        if number == args.most:
            print("... more with --most")
            break
        episode = record.episode
        print(
            f"{number:6} {episode.source:8} {episode.ending:9} {len(episode):3} steps "
            f"{len(record.images):3} screens  {episode.family}: {episode.goal}"
        )
    return 0


def _validate(args: Validate) -> int:
    from learner.dataset import Dataset

    dataset, wrong = Dataset(args.folder), 0
    for problem in dataset.problems():
        print(problem)
        wrong += 1
    if not wrong:
        print(f"{args.folder}: {len(dataset.segments())} files, all in order.")
    return 1 if wrong else 0


def _stats(args: Stats) -> int:
    from learner import dataset_tools
    from learner.dataset import Dataset

    print(json.dumps(dataset_tools.statistics(Dataset(args.folder)), indent=1))
    return 0


def _merge(args: Merge) -> int:
    from learner import dataset_tools

    written, doubles = dataset_tools.merge(args.folders, args.output)
    print(f"Wrote {written} episodes to {args.output}; {doubles} were there already.")
    return 0


def _export(args: Export) -> int:
    from learner import dataset_tools
    from learner.dataset import Dataset

    lines = (json.dumps(dataset_tools.plain(record)) + "\n" for record in Dataset(args.folder))
    if str(args.output) == "-":
        sys.stdout.writelines(lines)
        return 0
    try:
        with args.output.open("w", encoding="utf-8") as stream:
            stream.writelines(lines)
    except OSError as error:
        raise ConfigError(f"{args.output} can't be written: {error.strerror}.") from error
    return 0


def _import(args: Import) -> int:
    from common.models.autoui import AutoUIConfig
    from common.models.text import Tokenizer
    from learner import digirl_pt
    from learner.build import episode_spec
    from learner.checkpoint import load_policy
    from learner.dataset import Writer

    _, meta = load_policy(args.model)
    tokenizer = Tokenizer.from_json(meta["tokenizer"])
    spec = episode_spec(AutoUIConfig.from_dict(meta["model"]))
    convert = digirl_pt.Converter(spec, tokenizer, args.file.name, args.suite)
    left_out: collections.Counter[str] = collections.Counter()
    trajectories = digirl_pt.read_trajectories(args.file)
    with Writer(args.output, spec, tokenizer.to_json()) as writer:
        for number, steps in enumerate(trajectories):
            try:
                writer.write(convert(number, steps))
            except digirl_pt.UnusableError as error:
                left_out[str(error)] += 1
    print(f"Wrote {writer.count} of {len(trajectories)} episodes to {args.output}.")
    for reason, count in left_out.most_common():
        print(f"Left out {count}: {reason}.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
