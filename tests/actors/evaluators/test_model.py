"""A judge that asks a model: retries, limits, cache; its own trouble is never a verdict."""

import random

import pytest

from actors.evaluators.limits import Breaker, Budget, TokenBucket
from actors.evaluators.records import Cache
from actors.evaluators.retry import RetryPolicy
from actors.evaluators.verdict import Status
from common.errors import ConfigError
from tests.actors.evaluators import stub as stubs
from tests.actors.evaluators.conftest import client_of, judge_of, limits, request_of
from tests.actors.evaluators.stub import Reply, failure, text


class Time:
    """A clock that sleeping moves."""

    def __init__(self):
        self.now = 100.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def openai(stub):
    return client_of("openai", stub)


def patient(client, time, **changes):
    from actors.evaluators.model import ModelJudge
    from actors.evaluators.question import Protocol

    policy = RetryPolicy(attempts=4, deadline_s=60.0, call_timeout_s=5.0)
    return ModelJudge(
        client, Protocol(), limits(**{"retry": policy} | changes),
        clock=time, sleep=time.sleep, rng=random.Random(0),
    )  # fmt: skip


def test_a_verdict_says_how_it_came_about(client, stub):
    stub.answer = text("Seen: a clock.\nStatus: success")
    verdict = judge_of(client).judge(request_of())
    assert (verdict.status, verdict.source, verdict.error) == (Status.SUCCESS, "model", "")
    assert (verdict.model, verdict.answered_by) == (stubs.MODEL, f"{stubs.MODEL}-001")
    assert (verdict.tokens_in, verdict.tokens_out, verdict.attempts) == (1000, 20, 1)
    assert verdict.cost_usd == pytest.approx((1000 * 1 + 20 * 10) / 1e6)
    assert verdict.raw == "Seen: a clock.\nStatus: success"
    assert len(verdict.image_hashes) == 1 and verdict.prompt_hash


def test_trouble_that_passes_is_tried_again(client, stub):
    time = Time()
    stub.replies = [failure(503), Reply(drop="before"), Reply(body=b"<html>")]
    verdict = patient(client, time).judge(request_of())
    assert (verdict.status, verdict.attempts, len(stub.calls)) == (Status.SUCCESS, 4, 4)
    # half to all of .5, 1 and 2 s
    assert all(low <= s <= 2 * low for low, s in zip((0.25, 0.5, 1.0), time.slept, strict=True))


def test_a_service_that_stays_away_costs_four_calls_and_is_unknown(client, stub):
    """google-generativeai by itself made 127 calls in ten minutes of it."""
    stub.answer = failure(503)
    verdict = patient(client, Time()).judge(request_of())
    assert (verdict.status, verdict.error) == (Status.UNKNOWN, "http_503")
    assert (verdict.attempts, len(stub.calls)) == (4, 4)


def test_retry_info_is_honoured(gemini, stub):
    time = Time()
    stub.replies = [failure(429, stubs.retry_info("17.5s"))]
    assert patient(gemini, time).judge(request_of()).status is Status.SUCCESS
    assert time.slept == [17.5]


def test_no_wait_passes_the_deadline(gemini, stub):
    time = Time()
    stub.answer = failure(429, stubs.retry_info("61s"))
    verdict = patient(gemini, time).judge(request_of())
    assert (verdict.error, verdict.attempts, time.slept) == ("http_429", 1, [])


def test_what_is_refused_is_not_tried_again(client, stub):
    stub.answer = failure(400)
    assert patient(client, Time()).judge(request_of()).attempts == 1
    assert len(stub.calls) == 1


def test_a_service_that_drips_is_left(openai, stub):
    stub.answer = Reply(body=b" " * 100, drip_s=0.05)
    policy = RetryPolicy(attempts=1, deadline_s=0.3, call_timeout_s=0.3)
    verdict = judge_of(openai, retry=policy).judge(request_of())
    assert verdict.error == "timeout" and verdict.latency_s < 0.8


@pytest.mark.parametrize("code", [400, 403, 404])
def test_a_refused_question_stops_the_start(client, stub, code):
    stub.answer = failure(code, message="thinking level minimal is not supported")
    with pytest.raises(ConfigError, match="thinking level minimal"):
        judge_of(client).try_out(request_of())


def test_a_quota_of_the_day_opens_the_breaker_at_once(gemini, stub):
    time = Time()
    judge = patient(gemini, time, breaker=Breaker(5, clock=time))
    stub.replies = [failure(429, stubs.daily_quota(), stubs.retry_info("5s"))]
    assert judge.judge(request_of()).error == "quota"
    assert judge.judge(request_of()).error == "breaker_open"
    assert len(stub.calls) == 1
    time.now += 3601
    assert judge.judge(request_of()).status is Status.SUCCESS


def test_the_breaker_opens_after_failures_in_a_row_and_tries_one_call(openai, stub):
    time = Time()
    judge = patient(openai, time, breaker=Breaker(2, 30.0, time), retry=RetryPolicy(attempts=1))
    stub.answer = failure(500)
    assert [judge.judge(request_of()).error for _ in range(4)] == [
        "http_500", "http_500", "breaker_open", "breaker_open",
    ]  # fmt: skip
    time.now += 31
    assert judge.judge(request_of()).error == "http_500"  # the one call
    assert judge.judge(request_of()).error == "breaker_open"
    time.now += 31
    stub.answer = text("Status: failure")
    assert [judge.judge(request_of()).status for _ in range(3)] == [Status.FAILURE] * 3


@pytest.mark.parametrize(
    ("budget", "calls"),
    [(Budget(calls=3), 3), (Budget(tokens=1500), 2), (Budget(usd=0.003), 3)],
)
def test_no_call_is_made_past_a_budget(openai, stub, budget, calls):
    judge = judge_of(openai, budget=budget)
    verdicts = [judge.judge(request_of(shade=i)) for i in range(6)]
    assert len(stub.calls) == budget.spent.calls == calls
    assert [verdict.error for verdict in verdicts] == [""] * calls + ["budget"] * (6 - calls)


def test_calls_that_fail_are_in_the_budget_too(openai, stub):
    stub.answer = text("Status: success", "MAX_TOKENS")
    budget = Budget(tokens=1000)
    assert judge_of(openai, budget=budget).judge(request_of()).error == "cut"
    assert budget.spent.tokens == 1020


def test_the_rate_is_kept(openai, stub):
    time = Time()
    judge = patient(openai, time, bucket=TokenBucket(2.0, 1, time, time.sleep))
    for i in range(5):
        assert judge.judge(request_of(shade=i)).status is Status.SUCCESS
    assert time.now == pytest.approx(102.0)


def test_the_same_question_is_asked_once_and_a_missing_answer_again(openai, stub):
    judge = judge_of(openai, Cache())
    stub.answer = failure(500)
    assert judge.judge(request_of()).status is Status.UNKNOWN
    stub.answer = text("Status: failure")
    first, second = judge.judge(request_of()), judge.judge(request_of())
    assert (first.cached, second.cached, len(stub.calls)) == (False, True, 2)
    assert second.status is Status.FAILURE and second.tokens_in == second.cost_usd == 0
    judge.judge(request_of(shade=1))  # another screen
    judge.judge(request_of("Open the door"))  # another goal on the same screen
    assert len(stub.calls) == 4
