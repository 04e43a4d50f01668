"""A stand-in for Google's and OpenAI's services on loopback; answers as a test wants."""

import base64
import contextlib
import dataclasses
import http.server
import io
import json
import re
import threading
import time
from collections.abc import Callable, Iterator

from PIL import Image

MODEL = "gemini-test"
KEY = "secret"
_GOOGLE = re.compile(r"^/(v1|v1beta)/models/([^/:?]+)(:generateContent)?(\?.*)?$")


@dataclasses.dataclass(frozen=True)
class Reply:
    """What goes back.

    Attributes:
      body: A document, or bytes as they are.
      delay_s: Before anything is said.
      drip_s: Between two bytes, if not 0.
      drop: Ends the connection: "before" or "within" the body.
    """

    code: int = 200
    body: dict | bytes = dataclasses.field(default_factory=dict)
    delay_s: float = 0.0
    drip_s: float = 0.0
    drop: str = ""
    headers: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True)
class Call:
    """What was asked: texts and pictures in order, decoded."""

    path: str
    key: str
    instruction: str
    parts: tuple[str | Image.Image, ...]
    body: dict

    @property
    def text(self) -> str:
        """The last text: what is to be judged."""
        return [part for part in self.parts if isinstance(part, str)][-1]

    @property
    def goal(self) -> str:
        return self.text.partition("<goal>")[2].partition("</goal>")[0]


Answering = Callable[[Call], Reply]


def candidate(*parts: dict | str, reason: str | int = "STOP", **more) -> dict:
    made = [{"text": part} if isinstance(part, str) else part for part in parts]
    content = {"content": {"role": "model", "parts": made}} if made else {}
    return {"candidates": [content | {"finishReason": reason}], **more}


def text(said: str, reason: str | int = "STOP") -> Reply:
    usage = {"promptTokenCount": 1000, "candidatesTokenCount": 20, "totalTokenCount": 1020}
    body = candidate(said, reason=reason, usageMetadata=usage, modelVersion=f"{MODEL}-001")
    return Reply(body=body)


def failure(code: int, *details: dict, message: str = "no") -> Reply:
    error = {"code": code, "message": message, "status": "NO", "details": list(details)}
    return Reply(code, {"error": error})


def retry_info(delay: str) -> dict:
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


def daily_quota() -> dict:
    violation = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}
    kind = "type.googleapis.com/google.rpc.QuotaFailure"
    return {"@type": kind, "violations": [violation]}


class Stub:
    """The service.

    Attributes:
      answer: What to say to a question; a reply, or a function of the call.
      replies: Said first, one by one.
      describes: The code of an answer about the model.
      calls: What was asked so far.
    """

    def __init__(self) -> None:
        self.answer: Reply | Answering = text("Status: success")
        self.replies: list[Reply] = []
        self.describes = 200
        self.calls: list[Call] = []
        self.url = ""
        self.lock = threading.Lock()

    def reply(self, call: Call) -> Reply:
        with self.lock:
            self.calls.append(call)
            if self.replies:
                return self.replies.pop(0)
        return self.answer if isinstance(self.answer, Reply) else self.answer(call)


class _Handler(http.server.BaseHTTPRequestHandler):
    stub: Stub
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        code = self.stub.describes
        google = _GOOGLE.match(self.path)
        name = google[2] if google else self.path.rpartition("/")[2]
        good = {"name": f"models/{name}", "id": name}
        self._send(Reply(code, good if code == 200 else failure(code).body))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if _GOOGLE.match(self.path):
            self._send(self.stub.reply(self._google(body)))
        elif self.path.endswith("/chat/completions"):
            self._send(_as_openai(self.stub.reply(self._openai(body))))
        else:
            self._send(failure(404))

    def _google(self, body: dict) -> Call:
        said = body.get("systemInstruction") or body.get("system_instruction") or {"parts": []}
        instruction = "".join(part["text"] for part in said["parts"])
        parts = tuple(_part(part) for content in body["contents"] for part in content["parts"])
        return Call(self.path, self.headers["x-goog-api-key"] or "", instruction, parts, body)

    def _openai(self, body: dict) -> Call:
        system, user = body["messages"]
        parts = tuple(
            part["text"]
            if part["type"] == "text"
            else _picture(part["image_url"]["url"].partition(",")[2])
            for part in user["content"]
        )
        key = (self.headers["authorization"] or "").removeprefix("Bearer ")
        return Call(self.path, key, system["content"], parts, body)

    def _send(self, reply: Reply) -> None:
        time.sleep(reply.delay_s)
        self.close_connection = True
        if reply.drop == "before":
            return
        data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(reply.code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.send_header("connection", "close")  # or a client may reuse it as it closes
            for name, value in reply.headers:
                self.send_header(name, value)
            self.end_headers()
            if reply.drop == "within":
                data = data[: len(data) // 2]
            if not reply.drip_s:
                self.wfile.write(data)
                return
            for byte in data:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(reply.drip_s)

    def log_message(self, *args) -> None:
        pass


def _part(part: dict) -> str | Image.Image:
    if "text" in part:
        return part["text"]
    data = part.get("inlineData") or part["inline_data"]
    assert (data.get("mimeType") or data["mime_type"]) == "image/jpeg"
    return _picture(data["data"])


def _picture(encoded: str) -> Image.Image:
    """Decodes standard and URL-safe base64, padded or not."""
    plain = encoded.translate(str.maketrans("-_", "+/"))
    image = Image.open(io.BytesIO(base64.b64decode(plain + "=" * (-len(plain) % 4))))
    assert image.format == "JPEG"
    image.load()
    return image


def _as_openai(reply: Reply) -> Reply:
    """Turns Google's shape of an answer into OpenAI's."""
    if not isinstance(reply.body, dict) or "candidates" not in reply.body:
        return reply
    (found,) = reply.body["candidates"]
    parts = found.get("content", {}).get("parts", [])
    said = "".join(part["text"] for part in parts if not part.get("thought"))
    reason = {"STOP": "stop", "MAX_TOKENS": "length"}.get(found["finishReason"], "content_filter")
    usage = reply.body.get("usageMetadata", {})
    return dataclasses.replace(
        reply,
        body={
            "model": f"{MODEL}-001",
            "choices": [{"message": {"content": said}, "finish_reason": reason}],
            "usage": {
                "prompt_tokens": usage.get("promptTokenCount", 0),
                "completion_tokens": usage.get("candidatesTokenCount", 0),
            },
        },
    )


@contextlib.contextmanager
def serving() -> Iterator[Stub]:
    stub = Stub()
    handler = type("Handler", (_Handler,), {"stub": stub})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        stub.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()
