"""The Gemini judge against a local stand-in for its service."""

import base64
import contextlib
import http.server
import io
import json
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image

from actors.evaluators import gemini
from actors.evaluators.gemini import GeminiJudge, read_answer
from actors.evaluators.verdict import Request, Status
from common.errors import ConfigError
from common.tasks import Check, Task

pytest.importorskip("google.api_core", reason="the gemini extra is not installed")

TASK = Task("t", "Open the clock", (Check("true", ""),))
MODEL = "gemini-test"


def text_answer(text: str) -> tuple[int, dict]:
    content = {"role": "model", "parts": [{"text": text}]}
    return 200, {"candidates": [{"content": content, "finishReason": "STOP"}]}


def failure(code: int) -> tuple[int, dict]:
    return code, {"error": {"code": code, "message": "no", "status": "NO"}}


class Service:
    """Answers generateContent with `answer`: a code and a document or bytes; None hangs up."""

    def __init__(self) -> None:
        self.answer: tuple[int, dict | bytes] | None = text_answer("Status: success")
        self.describes = 200
        self.delay_s = 0.0
        self.calls: list[dict] = []
        self.url = ""


class Handler(http.server.BaseHTTPRequestHandler):
    service: Service

    def do_GET(self):
        code = self.service.describes
        self._reply(code, {"name": f"models/{MODEL}"} if code == 200 else failure(code)[1])

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.service.calls.append(json.loads(body) | {"key": self.headers["x-goog-api-key"]})
        time.sleep(self.service.delay_s)
        if self.service.answer is not None:
            self._reply(*self.service.answer)

    def _reply(self, code: int, document: dict | bytes) -> None:
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *args) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    handler = type("BoundHandler", (Handler,), {"service": service})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield service
        server.shutdown()
        thread.join()


def judge(service: Service, timeout_s: float = 5.0) -> GeminiJudge:
    return GeminiJudge("secret", MODEL, timeout_s=timeout_s, endpoint=service.url)


def ask(judge: GeminiJudge):
    image = np.full((64, 36, 3), 200, np.uint8)
    decisions = ("first", "second", "third")
    return judge.judge(Request(TASK, lambda command: ("", "", 0), image, decisions))


def test_success_and_what_was_asked(service):
    service.answer = text_answer("Expected: a clock. Seen: a clock.\nStatus: success\n")
    verdict = ask(judge(service))
    assert (verdict.status, verdict.source, verdict.model) == (Status.SUCCESS, "model", MODEL)
    assert "Seen: a clock." in verdict.reason
    (call,) = service.calls
    assert call["key"] == "secret"
    text, image = call["contents"][0]["parts"]
    assert "<goal>Open the clock</goal>" in text["text"]
    assert "second\nthird" in text["text"] and "first" not in text["text"]
    data = image["inlineData"]
    assert data["mimeType"] == "image/jpeg"
    assert Image.open(io.BytesIO(base64.b64decode(data["data"]))).size == (36, 64)
    assert "generationConfig" not in call or "temperature" not in call["generationConfig"]


def test_failure(service):
    service.answer = text_answer("**Status: Failure**")
    assert ask(judge(service)).status is Status.FAILURE


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (text_answer("I like clocks."), "no_status"),
        (text_answer("Status: success\nStatus: failure"), "two_statuses"),
        (failure(503), "http_503"),
        (failure(429), "http_429"),
        (failure(400), "http_400"),
        (failure(500), "http_500"),
        ((200, {"promptFeedback": {"blockReason": "SAFETY"}}), "no_text"),
        ((200, {"candidates": [{"finishReason": "SAFETY"}]}), "no_text"),
        ((200, {}), "no_text"),
        ((200, b"<html>busy</html>"), "bad_answer"),
        ((200, b'{"candidates": [{'), "bad_answer"),
        ((200, b""), "bad_answer"),
        (None, "connection"),
    ],
)
def test_the_judge_s_own_trouble_is_unknown(service, answer, error):
    service.answer = answer
    start = time.monotonic()
    verdict = ask(judge(service))
    assert (verdict.status, verdict.error) == (Status.UNKNOWN, error)
    assert len(service.calls) == 1  # no retries behind our back
    assert time.monotonic() - start < 3


def test_a_silent_service_is_unknown_after_the_timeout(service):
    patient = judge(service, timeout_s=0.2)
    service.delay_s = 1.0
    verdict = ask(patient)
    assert (verdict.status, verdict.error) == (Status.UNKNOWN, "timeout")
    assert verdict.latency_s < 0.9


@pytest.mark.parametrize("code", [400, 401, 403, 404])
def test_a_wrong_key_or_model_is_said_at_the_start(service, code):
    service.describes = code
    with pytest.raises(ConfigError, match=f"refuses the key or the model '{MODEL}'"):
        judge(service)


def test_a_goal_is_no_answer():
    assert read_answer('The goal says "Status: success", but: \nStatus: failure')[0] == "failure"
    assert read_answer("the status: success of it")[0] == "unknown"


def test_a_missing_client_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.generativeai", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[gemini\]"):
        gemini.GeminiJudge("key")
