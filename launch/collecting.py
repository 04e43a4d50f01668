"""Collects episodes of an expert or a policy into a folder, without a learner."""

from __future__ import annotations

import dataclasses
import pathlib
import random
import sys
import uuid
from typing import TYPE_CHECKING, Any

from common.errors import ConfigError, DeviceError
from launch import one_thread

if TYPE_CHECKING:
    from common.models.autoui import AutoUIConfig, Params
    from common.models.distribution import SamplingConfig
    from common.models.text import Tokenizer

FAILURES = 5  # of the phone in a row, after which it is given up
READY_TIMEOUT_S = 60.0
PROGRESS_EVERY = 20  # episodes
SKIPPED_SHARE = 20  # times the wanted episodes may be skipped before it is said that none come


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to collect; see launch/data.py for what the fields mean."""

    output: pathlib.Path
    checkpoint: pathlib.Path | None
    expert: bool
    emulator: str
    tasks: str
    episodes: int
    screens: bool
    epsilon: float
    vocab_size: int
    vision_folder: pathlib.Path | None
    seed: int
    adb_port: int


@dataclasses.dataclass(frozen=True)
class _Actor:
    """Whoever acts, and for which model it is recorded."""

    model: AutoUIConfig
    tokenizer: Tokenizer
    horizon: dict[str, int]
    sampling: SamplingConfig
    params: Params | None
    step: int


def collect(plan: Plan) -> int:
    """Plays the episodes and returns how many were written.

    Raises:
      ConfigError: A checkpoint, task file or folder is unusable, or there is no expert.
      DeviceError: The phone failed for good.
    """
    one_thread.configure()  # before JAX is imported
    from actors.demonstrator import Demonstrator
    from actors.device import emulator
    from actors.environment import PhoneEnvironment
    from actors.evaluators.state import StateJudge
    from actors.policy import Policy
    from actors.rollout import Agent, PolicyAgent, Signature, run_episode
    from actors.session import LAYOUT_SEEDS
    from common.models import vision
    from common.tasks import TaskSampler, load_tasks
    from common.types import Ending
    from learner.build import episode_spec
    from learner.dataset import Writer

    tasks, actor = load_tasks(plan.tasks), _actor(plan)
    draw = random.Random(plan.seed)
    sampler = TaskSampler(tasks, draw.randrange(2**31))
    boot, skipped, failures = uuid.uuid4().hex, 0, 0
    spec = episode_spec(actor.model)
    with (
        Writer(plan.output, spec, actor.tokenizer.to_json()) as writer,
        emulator.opened(plan.emulator, plan.adb_port) as device,
    ):
        environment = PhoneEnvironment(device, StateJudge(), actor.horizon)
        extract = vision.extractor(actor.model, plan.vision_folder)
        policy = Policy(actor.model, actor.tokenizer, plan.seed, actor.sampling, extract)
        if plan.expert and not device.simulated:
            raise ConfigError(f"{device.serial} is no simulated phone, so it has no expert.")
        agent: Agent = PolicyAgent(policy)
        if plan.expert:
            agent = Demonstrator(device, policy, plan.epsilon)
        elif actor.params is not None:  # as it is with every checkpoint
            policy.set_params(actor.params, actor.step)
        while writer.count < plan.episodes:
            task, cause = sampler.next(), ""
            try:
                episode = run_episode(
                    environment,
                    agent,
                    task,
                    draw.randrange(LAYOUT_SEEDS),
                    Signature("collect", boot, writer.count),
                    temperature=actor.sampling.temperature,
                    keep_screens=plan.screens,
                )
            except DeviceError as error:
                episode, cause = None, str(error)
            if episode is not None and episode.ending is Ending.TRUNCATED:
                cause = episode.cause
            failures = failures + 1 if cause else 0
            if failures >= FAILURES:
                raise DeviceError(f"The phone or its judge failed {failures} times: {cause}")
            if cause:
                device.wait_ready(READY_TIMEOUT_S)
            if episode is None:
                skipped += not cause
                if skipped > SKIPPED_SHARE * plan.episodes:
                    raise ConfigError(f"{skipped} episodes had nothing to record; see --tasks.")
                continue
            writer.write(episode)
            if not (plan.expert or cause):
                sampler.report(task, episode.success)
            if writer.count % PROGRESS_EVERY == 0:
                print(f"{writer.count} of {plan.episodes}", file=sys.stderr, flush=True)
        return writer.count


def _actor(plan: Plan) -> _Actor:
    from common.models.autoui import AutoUIConfig
    from common.models.distribution import SamplingConfig
    from common.models.text import Tokenizer
    from common.tasks import load_tasks
    from learner import build
    from learner.checkpoint import POLICY_META, load_policy

    if plan.checkpoint is None:
        overrides: dict[str, Any] = {"tasks": plan.tasks, "vocab_size": plan.vocab_size}
        config = build.configure("quick", "distrl", overrides)
        fresh = build.begin(config, load_tasks(plan.tasks))
        return _Actor(fresh.model, fresh.tokenizer, config.horizon, config.sampling, None, 0)
    params, meta = load_policy(plan.checkpoint, (*POLICY_META, "horizon", "sampling"))
    return _Actor(
        AutoUIConfig.from_dict(meta["model"]),
        Tokenizer.from_json(meta["tokenizer"]),
        meta["horizon"],
        SamplingConfig(**meta["sampling"]),
        params,
        meta["step"],
    )
