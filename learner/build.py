"""Builds a learner out of its parts, fresh or from the newest checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import pathlib
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from common import channel, files
from common.errors import ConfigError
from common.metrics import MetricsWriter
from common.models import autoui
from common.models.automaton import automaton_for
from common.models.lora import LoraConfig
from common.tasks import digest, load_tasks
from learner import config as configs
from learner import offline, presets, sharding
from learner.archive import Archive
from learner.checkpoint import Checkpoints
from learner.curriculum import Curriculum
from learner.dataset import Dataset, Writer
from learner.feed import Feed
from learner.ingest_process import IngestProcess
from learner.loop import Learner
from learner.memory import Memory
from learner.progress import Progress, begin_life
from learner.publish_process import PublisherProcess
from learner.start import begin, episode_spec
from learner.texts import TextEncoder
from learner.trainer import Trainer
from learner.update import make_updates

logger = logging.getLogger(__name__)


def configure(
    preset: str,
    algorithm: str,
    overrides: Mapping[str, str | int | float],
    without: Iterable[str] = (),
) -> configs.LearnerConfig:
    """Returns a preset with dotted settings replaced; ConfigError for an unknown or bad one.

    Args:
      preset: "quick" or "default".
      algorithm: One of `presets.PRESETS`.
      overrides: Values by dotted name; they have the last word.
      without: Parts to leave out, of `presets.ABLATIONS`.
    """
    base = configs.quick() if preset == "quick" else configs.LearnerConfig()
    base = presets.PRESETS[algorithm](base)
    for part in without:
        base = presets.ABLATIONS[part](base)
    for name, value in overrides.items():
        base = _replace(base, name, name.split("."), value)
    return base


def _replace(config: Any, name: str, path: list[str], value: str | int | float) -> Any:
    hints = typing.get_type_hints(type(config))
    if path[0] not in hints:
        raise ConfigError(
            f"There is no setting {name}; {type(config).__name__} has {', '.join(hints)}."
        )
    old = getattr(config, path[0])
    if len(path) > 1:
        return dataclasses.replace(config, **{path[0]: _replace(old, name, path[1:], value)})
    if isinstance(value, str) and not isinstance(old, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ConfigError(f"{name} must be {type(old).__name__}, not {value!r}.") from error
    if isinstance(old, tuple) and isinstance(value, list):
        value = tuple(value)
    if isinstance(old, float) and isinstance(value, int):
        value = float(value)
    if type(value) is not type(old):
        raise ConfigError(f"{name} must be {type(old).__name__}, not {value!r}.")
    return dataclasses.replace(config, **{path[0]: value})


@contextlib.contextmanager
def learner(
    *,
    workdir: pathlib.Path,
    listen: str,
    config: configs.LearnerConfig,
    seed: int,
    insecure: bool,
    keys: pathlib.Path | None = None,
) -> Iterator[Learner]:
    """Yields a learner that listens; everything it owns is closed afterwards.

    Raises:
      ConfigError: the port is in use, or the folder holds a run of another model.
    """
    tasks = load_tasks(config.tasks)
    try:
        workdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{workdir} can't be made: {error.strerror}.") from error
    with contextlib.ExitStack() as stack:
        lock = files.lock(workdir)
        if lock is None:
            raise ConfigError(
                f"Another learner uses {workdir}: stop it, or give another --workdir."
            )
        stack.enter_context(lock)
        checkpoints = stack.enter_context(Checkpoints(workdir / "checkpoints"))
        saved = checkpoints.latest_meta()
        recorded = Dataset(pathlib.Path(config.offline.data)) if config.offline.data else None
        start = begin(config, tasks, saved, recorded)
        model, tokenizer = start.model, start.tokenizer
        if saved is None:
            progress, rng = Progress(), np.random.default_rng(seed)
        elif "progress" not in saved:
            raise ConfigError(
                f"{workdir} holds a policy and no run that could go on. "
                "Give another --workdir, and this one's checkpoints with --init."
            )
        else:
            progress = Progress(**saved["progress"])
            if progress.phase == "done" and progress.episodes < config.reinforce.episodes:
                progress.phase = "reinforce"  # more was asked for than before
            rng = np.random.default_rng()
            rng.bit_generator.state = saved["rng"]
        if saved is not None and autoui.AutoUIConfig.from_dict(saved["model"]) != model:
            raise ConfigError(
                f"{workdir} holds a run of another model: {saved['model']}. "
                "Give another --workdir, or the settings of that run."
            )
        spec = episode_spec(model)
        if recorded is not None:
            recorded.require(spec, tokenizer.to_json())
        curriculum = Curriculum(tasks, config.curriculum)
        if saved is not None:
            curriculum.restore(saved.get("curriculum", {}))
        mesh = sharding.make_mesh(*config.mesh)
        for size in (config.reinforce.batch_steps, config.warm_start.batch):
            sharding.validate(model, mesh, size)
        adapters = LoraConfig(**saved.get("lora", {})) if saved is not None else config.update.lora
        if adapters != config.update.lora:
            raise ConfigError(
                f"{workdir} holds a run with {adapters}. Give another --workdir, or the settings "
                "of that run."
            )
        encode = _encoder(config)
        width = encode.width if encode else 0
        automaton = automaton_for(config.sampling, tokenizer, model.vocab_size, model.action_length)
        updates = make_updates(model, config.update, config.sampling, mesh, automaton, width)
        state = updates.init(jax.random.key(seed), start.params)
        if saved is not None:
            state = checkpoints.restore(state)
        if progress.warm_start_step is not None:
            checkpoints.pin(progress.warm_start_step)
        journal = workdir / "journal"
        feed = stack.enter_context(Feed(journal, spec, progress.position))
        memory = Memory(config, model.image_grid, rng, curriculum)
        if saved is not None:
            recall = functools.partial(offline.recall, feed, recorded)
            memory.restore(checkpoints.latest_memory(), recall)
        elif recorded is not None:
            memory.take_recorded(offline.numbered(recorded))
        life = begin_life(workdir, progress.lineage)
        progress.lineage = life.lineage
        (workdir / "config.json").write_text(
            json.dumps({"seed": seed, **config.to_dict()}, indent=1), encoding="utf-8"
        )
        host, port = channel.split_address(listen, lowest_port=0)
        publisher = stack.enter_context(
            PublisherProcess(
                f"tcp://{host}:{port + 1 if port else 0}", workdir / "parameters", insecure, keys
            )
        )
        settings = {
            "model": model.to_dict(),
            "tasks": config.tasks,
            "tasks_digest": digest(tasks),
            "horizon": config.horizon,
            "sampling": dataclasses.asdict(config.sampling),
            "screens_every": config.screens_every,
            "expert_epsilon": config.warm_start.epsilon,
        }
        ingest = stack.enter_context(
            IngestProcess(
                journal,
                listen,
                spec,
                {"run": life.run, "params_port": publisher.port, "settings": settings},
                tokenizer.to_json(),
                progress.position,
                max_lag=config.reinforce.arrival_lag,
                insecure=insecure,
                keys=keys and str(keys),
            )
        )
        ingest.set_task_weights(curriculum.weights())
        logger.info("Listening for actors on port %d.", ingest.port)
        metrics = stack.enter_context(MetricsWriter(workdir / "metrics.jsonl"))
        recorder = None
        if config.record:
            recorder = Writer(workdir / "recorded", spec, tokenizer.to_json())
        archive = stack.enter_context(contextlib.closing(Archive(workdir / "episodes", recorder)))
        yield Learner(
            config,
            progress,
            trainer=Trainer(
                config,
                updates,
                state,
                progress,
                memory,
                rng,
                image_grid=model.image_grid,
                encode=encode,
            ),
            ingest=ingest,
            feed=feed,
            memory=memory,
            publisher=publisher,
            checkpoints=checkpoints,
            metrics=metrics,
            archive=archive,
            meta={
                "model": model.to_dict(),
                "lora": dataclasses.asdict(config.update.lora),
                "tokenizer": tokenizer.to_json(),
                "origin": start.origin,
                "horizon": config.horizon,
                "sampling": dataclasses.asdict(config.sampling),
                "seed": seed,
            },
        )


def _encoder(config: configs.LearnerConfig) -> TextEncoder | None:
    """Returns what makes vectors of prompts, for the critic that wants them."""
    critic = config.update.critic
    if critic.kind != "roberta":
        return None
    if not critic.roberta:
        raise ConfigError(
            "update.critic.kind roberta needs update.critic.roberta, a folder with the "
            "encoder's config.json, model.safetensors and tokenizer.json."
        )
    steps = config.reinforce.replay_episodes * max(config.horizon.values())
    return TextEncoder(critic.roberta, capacity=steps)
