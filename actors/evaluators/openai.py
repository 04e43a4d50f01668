"""Any vision model behind an OpenAI-compatible endpoint: a local vLLM, say."""

from __future__ import annotations

import base64
import json
from typing import Any

import requests
import urllib3

from actors.evaluators import client
from actors.evaluators.client import Answer
from actors.evaluators.question import Question

_LARGEST = 4 * 2**20  # bytes of an answer
_ENDINGS = {"stop": "", "length": "MAX_TOKENS", "content_filter": "SAFETY"}


class OpenAIClient:
    """Asks one model by POST .../chat/completions."""

    def __init__(
        self,
        api_key: str,
        model: str,
        *,
        endpoint: str = "https://api.openai.com/v1",
        temperature: float | None = None,
    ):
        """Makes a client; asks nothing yet.

        Args:
          api_key: May be empty where the endpoint wants none.
          model: Its name there.
          endpoint: URL up to and with its version, as in http://127.0.0.1:8000/v1.
          temperature: Sent only if it is given.
        """
        self.model = model
        self._endpoint = endpoint.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._temperature = temperature

    def describe(self, timeout_s: float) -> None:
        """Asks for the model; servers that can't say (405, 501) are believed to have it."""
        code, body, retry_after = self._request("GET", f"models/{self.model}", None, timeout_s)
        if code not in (200, 405, 501):
            raise client.refused(code, _message(body), retry_after=retry_after)

    def ask(self, question: Question, timeout_s: float) -> Answer:
        content = [
            {"type": "image_url", "image_url": {"url": _data_url(part)}}
            if isinstance(part, bytes)
            else {"type": "text", "text": part}
            for part in question.parts
        ]
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [
                {"role": "system", "content": question.instruction},
                {"role": "user", "content": content},
            ],
        }
        if self._temperature is not None:
            body["temperature"] = self._temperature
        if question.schema is not None:
            schema = {"name": "verdict", "schema": dict(question.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        code, said, retry_after = self._request("POST", "chat/completions", body, timeout_s)
        if code != 200:
            raise client.refused(code, _message(said), retry_after=retry_after)
        return _read(said)

    def _request(
        self, method: str, path: str, body: dict[str, Any] | None, timeout_s: float
    ) -> tuple[int, bytes, str | None]:
        try:
            with requests.request(
                method,
                f"{self._endpoint}/{path}",
                json=body,
                headers=self._headers,
                timeout=timeout_s,
                stream=True,
                allow_redirects=False,  # the key goes nowhere else
            ) as answer:
                data = answer.raw.read(_LARGEST, decode_content=True)
                return answer.status_code, data, answer.headers.get("retry-after")
        except requests.RequestException as error:
            raise client.connection(error, isinstance(error, requests.Timeout)) from error
        except (OSError, urllib3.exceptions.HTTPError) as error:
            timeout = isinstance(error, urllib3.exceptions.TimeoutError)
            raise client.connection(error, timeout) from error


def _data_url(picture: bytes) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(picture).decode()


def _message(body: bytes) -> str:
    return body.decode(errors="replace")


def _read(body: bytes) -> Answer:
    try:
        document = json.loads(body)
        choice = document["choices"][0]
        text = choice["message"].get("content") or ""
        reason = choice.get("finish_reason") or "stop"
        usage = document.get("usage") or {}
        spent = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise client.garbled(error) from error
    if reason != "stop" or not isinstance(text, str) or not text:
        raise client.blocked(_ENDINGS.get(reason, str(reason)), spent)
    return Answer(text, str(document.get("model", "")), *spent)
