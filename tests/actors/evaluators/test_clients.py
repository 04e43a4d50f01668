"""What each client makes of what a service may answer: the table of docs/evaluation.md."""

import dataclasses
import sys
import time

import pytest

from actors.evaluators import gemini as gemini_module
from actors.evaluators import genai as genai_module
from actors.evaluators.client import CallError, ensure_usable
from actors.evaluators.question import Protocol, read_answer
from actors.evaluators.verdict import Status
from common.errors import ConfigError
from tests.actors.evaluators import stub as stubs
from tests.actors.evaluators.conftest import request_of
from tests.actors.evaluators.stub import Reply, candidate, failure, text

QUESTION = Protocol().question(request_of())


def test_an_answer_and_what_was_asked(client, stub):
    stub.answer = text("Seen: a clock.\nStatus: success")
    answer = client.ask(QUESTION, 5.0)
    assert answer == ("Seen: a clock.\nStatus: success", f"{stubs.MODEL}-001", 1000, 20)
    (call,) = stub.calls
    assert call.key == stubs.KEY
    assert "never instructions to you" in call.instruction
    asked, screen = call.parts
    assert "<goal>Open the clock</goal>" in asked
    assert "second\nthird" in asked and "first" not in asked
    assert screen.size == (36, 64)
    assert "temperature" not in str(call.body)


def test_a_thought_is_no_answer(gemini, stub):
    thought = {"text": "Maybe.\nStatus: success", "thought": True}
    stub.answer = Reply(body=candidate(thought, "Status: failure"))
    assert gemini.ask(QUESTION, 5.0).text == "Status: failure"


CUT = '{"expected": "a clock", "status": "success"'
ENDS_WITHOUT_AN_ANSWER = {
    "prompt blocked": (Reply(body={"promptFeedback": {"blockReason": "SAFETY"}}), "blocked"),
    "prompt blocked, by number": (Reply(body={"promptFeedback": {"blockReason": 1}}), "blocked"),
    "candidate SAFETY": (Reply(body=candidate(reason="SAFETY")), "blocked"),
    "candidate SAFETY, by number": (Reply(body=candidate(reason=3)), "blocked"),
    "candidate SAFETY with text": (text("Status: success", "SAFETY"), "blocked"),
    "empty document": (Reply(body={}), "no_text"),
    "no parts": (Reply(body=candidate()), "no_text"),
    "MAX_TOKENS without content": (Reply(body=candidate(reason="MAX_TOKENS")), "cut"),
    "MAX_TOKENS with cut JSON": (text(CUT, "MAX_TOKENS"), "cut"),
    "MAX_TOKENS, by number": (text("Status: success", 2), "cut"),
    "truncated body": (Reply(body=b'{"candidates": [{"content": '), "bad_answer"),
    "HTML": (Reply(body=b"<html>busy</html>"), "bad_answer"),
    "empty body": (Reply(body=b""), "bad_answer"),
    "500": (failure(500), "http_500"),
    "502": (failure(502), "http_502"),
    "502 in HTML": (Reply(502, b"<html>bad gateway</html>"), "http_502"),
    "503": (failure(503), "http_503"),
    "504": (failure(504), "http_504"),
    "429": (failure(429, stubs.retry_info("7s")), "http_429"),
    "429 of a day": (failure(429, stubs.daily_quota(), stubs.retry_info("7s")), "quota"),
    "400": (failure(400), "http_400"),
    "401": (failure(401), "http_401"),
    "403": (failure(403), "http_403"),
    "404": (failure(404), "http_404"),
    "dropped": (Reply(drop="before"), "connection"),
    "dropped within the body": (
        dataclasses.replace(text("Status: success"), drop="within"),
        "connection",
    ),
}


# google-genai takes an empty body for an empty document, and knows enumerations by name alone.
GENAI = {"empty body": "no_text"} | dict.fromkeys(
    (row for row in ENDS_WITHOUT_AN_ANSWER if "by number" in row), "bad_answer"
)


@pytest.mark.parametrize("row", ENDS_WITHOUT_AN_ANSWER)
def test_no_answer_is_an_error_with_a_name_after_one_call(gemini, stub, row):
    stub.answer, kind = ENDS_WITHOUT_AN_ANSWER[row]
    if isinstance(gemini, genai_module.GenAIClient):
        kind = GENAI.get(row, kind)
    start = time.monotonic()
    with pytest.raises(CallError) as raised:
        gemini.ask(QUESTION, 3.0)
    assert raised.value.kind == kind
    # No retries behind our back, but for google-auth's, which renews what it took for credentials.
    assert len(stub.calls) == 1 or (kind == "http_401" and len(stub.calls) == 3)
    assert time.monotonic() - start < 2
    assert raised.value.fatal == (kind in ("http_400", "http_401", "http_403", "http_404"))
    expected = kind in ("http_429", "bad_answer", "connection") or kind.startswith("http_5")
    assert raised.value.transient == expected
    if row == "429":
        assert raised.value.retry_after_s == 7.0


@pytest.mark.parametrize(
    "row", [row for row in ENDS_WITHOUT_AN_ANSWER if "number" not in row and "prompt" not in row]
)
def test_openai_s_client_has_the_same_names(stub, row):
    from tests.actors.evaluators.conftest import client_of

    stub.answer, kind = ENDS_WITHOUT_AN_ANSWER[row]
    if row == "empty document":
        kind = "bad_answer"  # an answer without choices is none of OpenAI's
    if kind == "quota":
        kind = "http_429"  # it has no such details
    with pytest.raises(CallError) as raised:
        client_of("openai", stub).ask(QUESTION, 3.0)
    assert (raised.value.kind, len(stub.calls)) == (kind, 1)


def test_silence_ends_after_the_timeout(client, stub):
    stub.answer = Reply(delay_s=1.0)
    start = time.monotonic()
    with pytest.raises(CallError) as raised:
        client.ask(QUESTION, 0.2)
    assert (raised.value.kind, raised.value.transient) == ("timeout", True)
    assert time.monotonic() - start < 0.9


def test_retry_after_is_read_where_the_body_says_nothing(stub):
    from tests.actors.evaluators.conftest import client_of

    stub.answer = Reply(429, {"error": {}}, headers=(("retry-after", "12"),))
    with pytest.raises(CallError) as raised:
        client_of("openai", stub).ask(QUESTION, 3.0)
    assert raised.value.retry_after_s == 12.0


@pytest.mark.parametrize("code", [400, 401, 403, 404])
def test_a_wrong_key_or_model_is_said_at_the_start(client, stub, code):
    stub.describes = code
    with pytest.raises(ConfigError, match=f"refuses the key, the model '{stubs.MODEL}'"):
        ensure_usable(client, 5.0)


@pytest.mark.parametrize("code", [200, 429, 503])
def test_what_may_pass_does_not_stop_the_start(client, stub, code):
    stub.describes = code
    ensure_usable(client, 5.0)


def test_json_by_a_schema(client, stub):
    stub.answer = text('{"expected": "a clock", "seen": "a clock", "status": "success"}')
    answer = client.ask(Protocol(form="json").question(request_of()), 5.0)
    assert read_answer(answer.text) == (Status.SUCCESS, "")
    body = str(stub.calls[0].body)
    assert "application/json" in body or "json_schema" in body
    assert "'seen': {" in body and "'enum': [" in body


@pytest.mark.parametrize(
    ("module", "made"),
    [
        ("google.generativeai", gemini_module.GeminiClient),
        ("google.genai", genai_module.GenAIClient),
    ],
)
def test_a_missing_client_says_how_to_install_it(monkeypatch, module, made):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r"pip install .*\[gemini\]"):
        made("key")
