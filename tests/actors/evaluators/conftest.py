"""The services' stand-in, and clients of it."""

import functools

import numpy as np
import pytest

from actors.evaluators.gemini import GeminiClient
from actors.evaluators.genai import GenAIClient
from actors.evaluators.limits import Breaker, Budget, Prices, TokenBucket
from actors.evaluators.model import Limits, ModelJudge
from actors.evaluators.openai import OpenAIClient
from actors.evaluators.question import Protocol
from actors.evaluators.retry import RetryPolicy
from actors.evaluators.verdict import Request
from common.tasks import Check, Task
from tests.actors.evaluators import stub as stubs

TASK = Task("t", "Open the clock", (Check("true", ""),))


@pytest.fixture
def stub():
    with stubs.serving() as stub:
        yield stub


@functools.cache
def installed(name: str) -> bool:
    import importlib.util

    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def client_of(name: str, stub: stubs.Stub):
    if name == "openai":
        return OpenAIClient(stubs.KEY, stubs.MODEL, endpoint=f"{stub.url}/v1")
    module, made = {
        "google-generativeai": ("google.generativeai", GeminiClient),
        "google-genai": ("google.genai", GenAIClient),
    }[name]
    if not installed(module):
        pytest.skip(f"{name} is not installed")
    return made(stubs.KEY, stubs.MODEL, endpoint=stub.url)


@pytest.fixture(params=["google-generativeai", "google-genai"])
def gemini(request, stub):
    """A client of Gemini on each of the two libraries."""
    return client_of(request.param, stub)


@pytest.fixture(params=["google-generativeai", "google-genai", "openai"])
def client(request, stub):
    """A client of each service and library."""
    return client_of(request.param, stub)


def limits(**changes) -> Limits:
    """Limits that a test does not notice, but for what it changes."""
    policy = RetryPolicy(attempts=1, deadline_s=10.0, call_timeout_s=5.0)
    values = {
        "retry": policy,
        "bucket": TokenBucket(1000.0, 1000),
        "breaker": Breaker(1000),
        "budget": Budget(),
        "prices": Prices(1.0, 10.0),
    }
    return Limits(**values | changes)


def request_of(goal: str = TASK.goal, shade: int = 200, decisions=("first", "second", "third")):
    image = np.full((64, 36, 3), shade, np.uint8)
    task = Task("t" if goal == TASK.goal else f"t {goal}", goal, TASK.checks)
    return Request(task, lambda command: ("", "", 0), image, tuple(decisions))


def judge_of(client, cache=None, protocol=None, **changes) -> ModelJudge:
    return ModelJudge(client, protocol or Protocol(), limits(**changes), cache)
