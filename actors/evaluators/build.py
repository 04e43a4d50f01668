"""Makes the judge that the command line asks for."""

from __future__ import annotations

import contextlib
import logging
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from actors.evaluators import gemini, genai, openai
from actors.evaluators.background import Background
from actors.evaluators.client import Client
from actors.evaluators.combine import Audited, Cascade, Vote, Watched
from actors.evaluators.config import JudgeConfig
from actors.evaluators.examples import examples
from actors.evaluators.human import HumanJudge
from actors.evaluators.limits import Breaker, Budget, Prices, TokenBucket
from actors.evaluators.model import Limits, ModelJudge
from actors.evaluators.question import Protocol
from actors.evaluators.records import Cache, Recorded, ReplayJudge
from actors.evaluators.retry import RetryPolicy
from actors.evaluators.state import StateJudge
from actors.evaluators.verdict import Judge, Request
from common.errors import ConfigError
from common.tasks import Task

logger = logging.getLogger(__name__)

KINDS = (
    "state, gemini[:MODEL], openai:MODEL, replay:FILE[@JUDGE], human, cascade:A,B,... or "
    "vote:A,B,..."
)
_KEYS = {"gemini": "GEMINI_API_KEY", "openai": "OPENAI_API_KEY"}
WAITED_OUT = ("breaker_open", "quota")  # by an actor, whose episodes wait meanwhile
_SLOW = {"gemini", "openai", "human"}


class Built(NamedTuple):
    """A judge, and the limits that it shares with whoever asks the same service."""

    judge: Judge
    limits: Limits

    @property
    def budget(self) -> Budget:
        return self.limits.budget


@contextlib.contextmanager
def opened(
    config: JudgeConfig,
    variables: Mapping[str, str],
    audited: str = "",
    forgiven: Collection[str] = (),
) -> Iterator[Built]:
    """Yields the judge that a configuration asks for, and ends it afterwards.

    Args:
      config: What was asked for.
      variables: The environment, for keys.
      audited: A second judge, which is asked the same for the record alone.
      forgiven: Errors that don't count towards the limit of missing verdicts.

    Raises:
      ConfigError: It can't be made: an unknown name, a missing key or client, a key or a model that
        the service refuses.
    """
    config.check_judge()
    with contextlib.ExitStack() as stack:
        maker = _Maker(config, variables, stack)
        judge: Judge = Watched(
            maker.recorded(config.judge), config.judge_unknown_limit, forgiven=forgiven
        )
        if audited:
            judge = Audited(judge, maker.recorded(audited))
        if maker.kinds & _SLOW:
            judge = stack.enter_context(Background(judge, reads_phone="state" in maker.kinds))
        yield Built(judge, maker.limits)


class _Maker:
    """Makes judges by name; models share limits, budget and cache."""

    def __init__(
        self, config: JudgeConfig, variables: Mapping[str, str], stack: contextlib.ExitStack
    ):
        self._config, self._variables, self._stack = config, variables, stack
        self.limits = Limits(
            RetryPolicy(config.judge_attempts, config.judge_deadline_s, config.judge_timeout_s),
            TokenBucket(config.judge_rate, burst=max(1, round(config.judge_rate))),
            Breaker(),
            Budget(config.judge_calls, config.judge_tokens, config.judge_usd),
            Prices(config.judge_price_in, config.judge_price_out),
        )
        self.kinds: set[str] = set()
        self._cache = Cache()
        if config.judge_records is not None and config.judge_records.exists():
            self._cache.load(config.judge_records)

    def recorded(self, name: str) -> Judge:
        judge = self.make(name)
        if self._config.judge_records is None:
            return judge
        records = Recorded(judge, name, self._config.judge_records)
        self._stack.callback(records.close)
        return records

    def make(self, name: str) -> Judge:
        kind, _, rest = name.partition(":")
        self.kinds.add(kind)
        match kind:
            case "state" if not rest:
                return StateJudge()
            case "human" if not rest:
                human = self._stack.enter_context(HumanJudge(self._config.judge_port))
                print(f"Judge at {human.url}", flush=True)
                return human
            case "replay" if rest:
                path, _, whose = rest.partition("@")
                return ReplayJudge(pathlib.Path(path), whose)
            case "cascade" | "vote" if rest:
                judges = [self.make(part.strip()) for part in rest.split(",")]
                return Cascade(judges) if kind == "cascade" else Vote(judges)
            case "gemini" | "openai" if rest or kind == "gemini":
                return self._model(self.client(kind, rest))
        raise ConfigError(f"There is no judge {name!r}: give {KINDS}.")

    def client(self, kind: str, model: str) -> Client:
        """Makes the client of a service; ConfigError without a key or the library."""
        return make_client(kind, model, self._config, self._variables)

    def _model(self, client: Client) -> Judge:
        """Makes a judge of a model and lets it answer once, so that a refusal is known now."""
        config = self._config
        protocol = Protocol(examples(), config.judge_context, config.judge_format)
        judge = ModelJudge(client, protocol, self.limits, self._cache)
        judge.check()
        example = examples()[0]
        task = Task("start", example.goal, ())
        verdict = judge.try_out(Request(task, _no_phone, example.image, example.decisions))
        if verdict.status is not example.status:
            logger.warning(
                "The judge %s calls a screen that is a %s %s: %s",
                client.model,
                example.status,
                verdict.status,
                verdict.error or verdict.reason,
            )
        return judge


def make_client(kind: str, model: str, config: JudgeConfig, variables: Mapping[str, str]) -> Client:
    """Makes the client of a service.

    Args:
      kind: "gemini" or "openai".
      model: "" is the default of gemini.
      config: Which client, where, and at what temperature.
      variables: The environment, for the key.

    Raises:
      ConfigError: There is no key, or the client is not installed.
    """
    if kind not in _KEYS or (kind == "openai" and not model):
        raise ConfigError(f"{kind!r} names no model: give gemini, gemini:MODEL or openai:MODEL.")
    key = variables.get(_KEYS[kind], "")
    options: Any = {"temperature": config.judge_temperature}
    if kind == "openai":
        if config.judge_endpoint:
            return openai.OpenAIClient(key, model, endpoint=config.judge_endpoint, **options)
        if not key:
            raise ConfigError(f"The openai judge needs a key or an endpoint: set {_KEYS[kind]}.")
        return openai.OpenAIClient(key, model, **options)
    if not key:
        raise ConfigError(f"The gemini judge needs a key: set {_KEYS[kind]}.")
    made = (
        gemini.GeminiClient if config.judge_client == "google-generativeai" else genai.GenAIClient
    )
    model = model or config.judge_model or gemini.DEFAULT_MODEL
    return made(key, model, endpoint=config.judge_endpoint, **options)


def _no_phone(command: str) -> tuple[str, str, int]:
    raise AssertionError(f"A model ran {command!r} on the phone.")
