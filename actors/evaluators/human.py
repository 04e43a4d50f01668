"""A person as the judge, through a small page on this machine."""

from __future__ import annotations

import base64
import html
import http.server
import itertools
import secrets
import threading
import time
import urllib.parse
from typing import Self

from actors.evaluators.question import jpeg
from actors.evaluators.verdict import Request, Status, Verdict
from common.errors import ConfigError

_MAX_FORM = 1000  # bytes
_POLL_S = 2  # after so long an empty page looks again
_PAGE = """<!doctype html><meta charset="utf-8"><title>Is it done?</title>
<style>body{{font-family:sans-serif;margin:2em;display:flex;gap:2em}}img{{height:85vh;border:1px
solid #888}}button{{font-size:1.2em;margin:.3em}}code{{font-size:.8em}}</style>{head}{body}"""


class HumanJudge:
    """Shows questions one by one and waits for an answer.

    Attributes:
      url: Where the page is; the word in it keeps other pages of the browser from answering.
    """

    def __init__(self, port: int = 0, timeout_s: float = 600.0):
        """Serves the page on loopback.

        Args:
          port: 0 takes a free one.
          timeout_s: After which a question is UNKNOWN.

        Raises:
          ConfigError: The port is taken.
        """
        self._timeout_s = timeout_s
        self._questions: dict[int, _Asked] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._word = secrets.token_urlsafe(12)
        handler = type("Handler", (_Handler,), {"judge": self})
        try:
            self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
        except OSError as error:
            raise ConfigError(f"The page for judging can't use port {port}: {error}.") from error
        self.url = f"http://127.0.0.1:{self._server.server_port}/{self._word}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="human judge", daemon=True
        )
        self._thread.start()

    def judge(self, request: Request) -> Verdict:
        start = time.monotonic()
        asked = _Asked(request)
        with self._lock:
            number = next(self._numbers)
            self._questions[number] = asked
        answered = asked.done.wait(self._timeout_s)
        with self._lock:
            del self._questions[number]
        latency_s = time.monotonic() - start
        if not answered:
            said = f"Nobody answered within {self._timeout_s:.0f} s."
            return Verdict(Status.UNKNOWN, said, "human", latency_s=latency_s, error="no_answer")
        error = "unsure" if asked.status is Status.UNKNOWN else ""
        said = f"A person says {asked.status}."
        return Verdict(asked.status, said, "human", latency_s=latency_s, error=error)

    def answer(self, number: int, status: Status) -> None:
        """Answers a question, if it is still asked."""
        with self._lock:
            asked = self._questions.get(number)
        if asked is not None:
            asked.status = status
            asked.done.set()

    def page(self) -> str:
        """Returns the page of the oldest open question."""
        with self._lock:
            number, asked = next(
                ((n, a) for n, a in self._questions.items() if not a.done.is_set()), (0, None)
            )
        if asked is None:
            head = f'<meta http-equiv="refresh" content="{_POLL_S}">'
            return _PAGE.format(head=head, body="<p>Nothing is to be judged now.</p>")
        picture = base64.b64encode(jpeg(asked.request.image)).decode()
        decisions = "".join(
            f"<li><code>{html.escape(decision)}</code>" for decision in asked.request.decisions
        )
        buttons = "".join(
            f'<button name="status" value="{status}">{text}</button>'
            for status, text in (("success", "Done"), ("failure", "Not done"), ("unknown", "?"))
        )
        body = (
            f'<img src="data:image/jpeg;base64,{picture}">'
            f"<div><h1>{html.escape(asked.request.task.goal)}</h1><form method='post'>"
            f'<input type="hidden" name="number" value="{number}">{buttons}</form>'
            f"<ol>{decisions}</ol></div>"
        )
        return _PAGE.format(head="", body=body)

    def serves(self, path: str) -> bool:
        return secrets.compare_digest(path, f"/{self._word}")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Asked:
    def __init__(self, request: Request):
        self.request = request
        self.done = threading.Event()
        self.status = Status.UNKNOWN


class _Handler(http.server.BaseHTTPRequestHandler):
    judge: HumanJudge

    def do_GET(self) -> None:
        if not self.judge.serves(self.path):
            self.send_error(404)
            return
        page = self.judge.page().encode()
        self.send_response(200)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def do_POST(self) -> None:
        size = self.headers.get("content-length", "")
        if not self.judge.serves(self.path) or not size.isdecimal() or int(size) > _MAX_FORM:
            self.send_error(400)
            return
        form = urllib.parse.parse_qs(self.rfile.read(int(size)).decode(errors="replace"))
        number, status = form.get("number", [""])[0], form.get("status", [""])[0]
        if not number.isdecimal() or status not in tuple(Status):
            self.send_error(400)
            return
        self.judge.answer(int(number), Status(status))
        self.send_response(303)
        self.send_header("location", self.path)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        del format, args
