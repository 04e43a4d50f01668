"""One evaluation: from a checkpoint, phones and a judge to a report."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from actors import evaluate, panel
from actors.agents import RandomAgent, RepeatablePolicy, ScriptedExpert
from actors.device import health
from actors.device.adb import AdbDevice
from actors.environment import PhoneEnvironment
from actors.evaluate import Result, Worker
from actors.evaluators import build
from actors.evaluators.build import Built
from actors.evaluators.limits import Spent
from actors.policy import Policy
from actors.prompted import PromptedAgent
from actors.rollout import Agent
from common.errors import ConfigError
from common.models import vision
from common.models.autoui import AutoUIConfig
from common.models.distribution import SamplingConfig
from common.models.text import Tokenizer
from common.tasks import SPECS
from launch import report
from learner.checkpoint import POLICY_META, load_policy

if TYPE_CHECKING:
    from launch.evaluate import Args

Progress = Callable[[Iterable[Result], str, int], Iterable[Result]]


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A checkpoint, or nothing for an agent that needs none.

    Attributes:
      policies: By the name of the way of acting.
      step: Of the checkpoint.
      horizon: The most steps that it was trained with, by suite.
    """

    path: str = ""
    policies: Mapping[str, Policy] = dataclasses.field(default_factory=dict)
    step: int | None = None
    horizon: Mapping[str, int] = dataclasses.field(default_factory=dict)


class Evaluation:
    """What stays the same for all checkpoints of an evaluation."""

    def __init__(self, args: Args, variables: Mapping[str, str]):
        """Reads the tasks.

        Args:
          args: What was asked for.
          variables: The environment, for keys.

        Raises:
          ConfigError: There are none, or what was asked for does not fit together.
        """
        self._args, self._variables = args, variables
        self._spent = Spent()  # on the checkpoints before
        self._preset = panel.PRESETS.get(args.preset)
        spec = args.tasks
        if self._preset and spec == "all-test":
            spec = f"{self._preset.suite}-test"
        self._spec, self._tasks = spec, panel.load(spec)
        train = args.train_tasks or (spec.replace("-test", "-train") if spec in SPECS else "")
        trained = panel.load(train) if train and train != spec else ()
        self._overlap = panel.overlap(self._tasks, trained)

    @staticmethod
    def steps(folder: pathlib.Path) -> list[int]:
        """Returns the finished checkpoints of a run's folder, the newest last."""
        found = folder.iterdir() if folder.is_dir() else ()
        return sorted(int(p.name) for p in found if p.name.isdecimal() and (p / "params").is_dir())

    def load(self, checkpoint: pathlib.Path | None) -> Loaded:
        """Loads what is to be evaluated; ConfigError if it is unusable."""
        if checkpoint is None:
            return Loaded()
        args = self._args
        params, meta = load_policy(checkpoint, (*POLICY_META, "sampling"))
        policies = {}
        if args.agent == "policy":
            model, tokenizer = (
                AutoUIConfig.from_dict(meta["model"]),
                Tokenizer.from_json(meta["tokenizer"]),
            )
            extract = vision.extractor(model, args.vision_folder, args.vision_dtype)
            for mode, sampling in self._samplings(SamplingConfig(**meta["sampling"])).items():
                policies[mode] = Policy(model, tokenizer, args.seed, sampling, extract)
                policies[mode].set_params(params, meta["step"])
        return Loaded(str(checkpoint), policies, meta["step"], meta.get("horizon", {}))

    def run(
        self, loaded: Loaded, devices: Sequence[AdbDevice], built: Built, progress: Progress
    ) -> dict[str, Any]:
        """Evaluates one checkpoint, or an agent that needs none.

        Raises:
          ConfigError: The agent can't work there.
          DistRLError: All phones are gone, or the judge stops it.
        """
        args, began = self._args, time.monotonic()
        entries = self._panel(loaded.horizon)
        found: dict[str, Any] = {}
        for mode, agents in self._ways(loaded, devices, built):
            started = time.monotonic()
            workers = [
                Worker(
                    PhoneEnvironment(device, built.judge, entries.horizon),
                    agent,
                    functools.partial(health.wait_ready, device),
                )
                for device, agent in zip(devices, agents, strict=True)
            ]
            running = evaluate.evaluate(workers, entries.entries, args.repeats)
            shown = progress(running, mode, len(entries.entries) * args.repeats)
            found[mode] = report.summarise(list(shown))
            found[mode]["wall_s"] = round(time.monotonic() - started, 1)
        spent, self._spent = (
            built.budget.spent.since(self._spent),
            built.budget.spent.since(Spent()),
        )
        goals = [task for task, _ in entries.entries]
        return {
            "agent": args.agent if args.agent != "prompted" else f"prompted {args.agent_model}",
            "checkpoint": loaded.path,
            "step": loaded.step,
            "tasks": self._spec,
            "preset": args.preset,
            "protocol": dataclasses.asdict(self._preset) if self._preset else None,
            "seed": args.seed,
            "panel_hash": entries.hash,
            "panel_size": len(entries.entries),
            "panel_tasks": len({task.id for task in goals}),
            "horizon": dict(entries.horizon),
            "repeats": args.repeats,
            "overlap": list(self._overlap),
            "repeated": list(panel.repeated({task.id: task for task in goals}.values())),
            "judge": {"name": args.judge, "context": args.judge_context}
            | dataclasses.asdict(spent),
            "devices": [device.serial for device in devices],
            "not_repeatable": self._not_repeatable(devices),
            "wall_s": round(time.monotonic() - began, 1),
            "modes": list(found),
            "config": _plain(args),
            **found,
        }

    def _panel(self, horizon: Mapping[str, int]) -> panel.Panel:
        args, preset = self._args, self._preset
        steps = args.horizon or (preset.steps if preset else None)
        if steps:
            horizon = dict.fromkeys({task.suite for task in self._tasks}, steps)
        count = preset.count if preset else args.episodes
        return panel.draw(self._tasks, count, args.seed, horizon, shuffle=preset is None)

    def _ways(
        self, loaded: Loaded, devices: Sequence[AdbDevice], built: Built
    ) -> Iterator[tuple[str, list[Agent]]]:
        """Yields each way of acting with an agent for each phone."""
        args = self._args
        if args.agent == "random":
            yield "random", [RandomAgent(args.seed) for _ in devices]
        elif args.agent == "expert":
            if not all(device.simulated for device in devices):
                raise ConfigError("The expert knows simulated phones alone: --emulator phone.")
            yield "expert", [ScriptedExpert(device) for device in devices]
        elif args.agent == "prompted":
            kind, _, model = args.agent_model.partition(":")
            client = build.make_client(kind, model, args, self._variables)
            yield "prompted", [PromptedAgent(client, d, built.limits) for d in devices]
        for mode, policy in loaded.policies.items():
            yield mode, [RepeatablePolicy(policy.twin(), args.seed) for _ in devices]

    def _samplings(self, trained: SamplingConfig) -> dict[str, SamplingConfig]:
        args, preset = self._args, self._preset
        greedy = dataclasses.replace(trained, temperature=0.0)
        if preset:
            return {"sampled": dataclasses.replace(trained, temperature=preset.temperature)}
        return {mode: {"sampled": trained, "greedy": greedy}[mode] for mode in args.modes}

    def _not_repeatable(self, devices: Sequence[AdbDevice]) -> list[str]:
        """Sentences about what may differ in another run of the same."""
        args, said = self._args, []
        if any(not device.simulated for device in devices):
            said.append("a device keeps what its apps keep, and its screens change by themselves")
        if args.judge != "state" and not args.judge.startswith("replay:"):
            said.append(f"the judge {args.judge} may answer otherwise the next time")
        if args.agent == "prompted":
            said.append(f"the model {args.agent_model} may act otherwise the next time")
        return said


def _plain(args: Any) -> dict[str, Any]:
    """The configuration as JSON takes it, for comparisons."""
    values = dataclasses.asdict(args)
    return {k: str(v) if isinstance(v, pathlib.Path) else v for k, v in sorted(values.items())}
