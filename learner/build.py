"""Builds a learner out of its parts, fresh or from the newest checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import logging
import pathlib
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from common import channel
from common.codec import EpisodeSpec
from common.errors import ConfigError
from common.metrics import MetricsWriter
from common.models import autoui
from common.models.automaton import automaton_for
from common.models.lora import LoraConfig
from common.models.text import Tokenizer, grammar_corpus
from common.tasks import Task, digest, load_tasks
from learner import config as configs
from learner import presets, sharding
from learner.archive import Archive
from learner.checkpoint import Checkpoints, load_policy
from learner.curriculum import Curriculum
from learner.dataset import Dataset, Writer
from learner.ingest import Ingest
from learner.loop import Learner, Progress
from learner.publish import Publisher
from learner.texts import TextEncoder
from learner.update import make_updates

TEXT_WEIGHT = 20  # against the grammar's corpus, so that the tasks' words become one token each

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
    *, workdir: pathlib.Path, listen: str, config: configs.LearnerConfig, seed: int, insecure: bool
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
        checkpoints = stack.enter_context(Checkpoints(workdir / "checkpoints"))
        saved = checkpoints.latest_meta()
        recorded = Dataset(pathlib.Path(config.offline.data)) if config.offline.data else None
        start = begin(config, tasks, saved, recorded)
        model, tokenizer = start.model, start.tokenizer
        if saved is None:
            progress, rng = Progress(lineage=1), np.random.default_rng(seed)
        elif "progress" not in saved:
            raise ConfigError(
                f"{workdir} holds a policy and no run that could go on. "
                "Give another --workdir, and this one's checkpoints with --init."
            )
        else:
            progress = Progress(**saved["progress"])
            progress.lineage += 1  # versions before and after a restart are never confused
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
        encode = None
        if config.update.critic.kind == "roberta":
            if not config.update.critic.roberta:
                raise ConfigError(
                    "update.critic.kind roberta needs update.critic.roberta, a folder with the "
                    "encoder's config.json, model.safetensors and tokenizer.json."
                )
            steps = config.reinforce.replay_episodes * max(config.horizon.values())
            encode = TextEncoder(config.update.critic.roberta, capacity=steps)
        width = encode.width if encode else 0
        automaton = automaton_for(config.sampling, tokenizer, model.vocab_size, model.action_length)
        updates = make_updates(model, config.update, config.sampling, mesh, automaton, width)
        state = updates.init(jax.random.key(seed), start.params)
        if saved is not None:
            state = checkpoints.restore(state)
        if progress.warm_start_step is not None:
            checkpoints.pin(progress.warm_start_step)
        (workdir / "config.json").write_text(
            json.dumps({"seed": seed, **config.to_dict()}, indent=1), encoding="utf-8"
        )
        host, port = channel.split_address(listen, lowest_port=0)
        publisher = stack.enter_context(
            Publisher(f"tcp://{host}:{port + 1 if port else 0}", insecure)
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
            Ingest(
                listen,
                spec,
                {
                    "run": workdir.absolute().name,
                    "params_port": publisher.port,
                    "settings": settings,
                },
                tokenizer.to_json().encode(),
                insecure=insecure,
            )
        )
        publisher.start()
        ingest.set_task_weights(curriculum.weights())
        ingest.start()
        logger.info("Listening for actors on port %d.", ingest.port)
        metrics = stack.enter_context(MetricsWriter(workdir / "metrics.jsonl"))
        recorder = None
        if config.record:
            recorder = Writer(workdir / "recorded", spec, tokenizer.to_json())
        archive = stack.enter_context(contextlib.closing(Archive(workdir / "episodes", recorder)))
        yield Learner(
            config,
            updates,
            state,
            progress,
            rng,
            ingest=ingest,
            publisher=publisher,
            checkpoints=checkpoints,
            metrics=metrics,
            archive=archive,
            curriculum=curriculum,
            recorded=None if recorded is None else (found.episode for found in recorded),
            meta={
                "model": model.to_dict(),
                "lora": dataclasses.asdict(config.update.lora),
                "tokenizer": tokenizer.to_json(),
                "origin": start.origin,
                "horizon": config.horizon,
                "sampling": dataclasses.asdict(config.sampling),
                "seed": seed,
            },
            encode=encode,
        )


class Start(NamedTuple):
    """What a policy begins with; `params` None are fresh ones, or those of the run's checkpoint."""

    model: autoui.AutoUIConfig
    tokenizer: Tokenizer
    origin: dict[str, Any] | None  # of a policy from elsewhere, for the way back
    params: autoui.Params | None


def begin(
    config: configs.LearnerConfig,
    tasks: Sequence[Task],
    saved: dict[str, Any] | None = None,
    recorded: Dataset | None = None,
) -> Start:
    """Takes up the run's checkpoint, or else another one that is named, or else begins afresh.

    A fresh policy takes the tokenizer of the recorded episodes that it is to learn from.
    """
    params, source = None, saved
    if saved is None and config.init:
        params, source = load_policy(pathlib.Path(config.init))
    if source is None and recorded is not None:
        tokenizer = Tokenizer.from_json(recorded.tokenizer)
    elif source is None:
        # A value on its own too: at the start of a typed text it has no space before it.
        texts = [t for task in tasks for t in (task.goal, *dict(task.values).values())]
        tokenizer = Tokenizer.train(
            itertools.chain(grammar_corpus(), texts * TEXT_WEIGHT), config.vocab_size
        )
    else:
        tokenizer = Tokenizer.from_json(source["tokenizer"])
    if source is not None and config.init:
        model = autoui.AutoUIConfig.from_dict(source["model"])
    else:
        preset = autoui.PRESETS[config.model]
        model = dataclasses.replace(preset, vocab_size=_vocab(config, tokenizer))
    origin = source.get("origin") if source is not None else None
    return Start(model, tokenizer, origin, params)


def episode_spec(model: autoui.AutoUIConfig) -> EpisodeSpec:
    """Returns the sizes of the episodes that a model acts in."""
    return EpisodeSpec(
        prompt_length=model.prompt_length,
        action_length=model.action_length,
        image_tokens=model.image_tokens,
        image_dim=model.image_dim,
        vocab_size=model.vocab_size,
        features_dtype=model.features_dtype,
    )


def _vocab(config: configs.LearnerConfig, tokenizer: Tokenizer) -> int:
    """The tokenizer's size, rounded up to what shards and vectorises well."""
    size = -(-tokenizer.vocab_size // 64) * 64
    return min(max(size, 64), max(config.vocab_size, size))
