"""Gemini through google-genai, the maintained client."""

from __future__ import annotations

import importlib.util
from typing import Any

from actors.evaluators import client
from actors.evaluators.client import Answer, CallError
from actors.evaluators.gemini import DEFAULT_MODEL, INSTALL
from actors.evaluators.question import Question
from common.errors import ConfigError


class GenAIClient:
    """Asks one Gemini model over REST; makes no retries of its own."""

    def __init__(
        self,
        api_key: str,
        model: str = DEFAULT_MODEL,
        *,
        endpoint: str = "",
        temperature: float | None = None,
    ):
        """Makes a client; asks nothing yet.

        Args:
          api_key: Of Google AI Studio.
          model: Its name, without "models/".
          endpoint: Where the API is, for a proxy or a test; "" is Google's.
          temperature: Sent only if it is given.

        Raises:
          ConfigError: google-genai is not installed.
        """
        self.model = model
        try:
            from google import genai
            from google.genai import errors, types

            http = importlib.import_module(
                "httpx2" if importlib.util.find_spec("httpx2") else "httpx"
            )
        except ImportError as error:
            raise ConfigError(INSTALL) from error
        self._types = types
        self._refusals = errors.APIError
        self._network, self._timeout = http.HTTPError, http.TimeoutException
        options = types.HttpOptions(base_url=endpoint or None)
        self._client = genai.Client(api_key=api_key, vertexai=False, http_options=options)
        self._temperature = temperature

    def describe(self, timeout_s: float) -> None:
        config: Any = {"http_options": {"timeout": _milliseconds(timeout_s)}}
        self._call(lambda: self._client.models.get(model=self.model, config=config))

    def ask(self, question: Question, timeout_s: float) -> Answer:
        types = self._types
        parts = [
            types.Part.from_bytes(data=part, mime_type="image/jpeg")
            if isinstance(part, bytes)
            else types.Part.from_text(text=part)
            for part in question.parts
        ]
        config: Any = {  # the client's dictionaries are typed too narrowly to be built up
            "system_instruction": question.instruction,
            "http_options": {"timeout": _milliseconds(timeout_s)},
        }
        if self._temperature is not None:
            config["temperature"] = self._temperature
        if question.schema is not None:
            config["response_mime_type"] = "application/json"
            config["response_json_schema"] = dict(question.schema)
        contents = types.Content(role="user", parts=parts)
        return _read(
            self._call(
                lambda: self._client.models.generate_content(
                    model=self.model, contents=contents, config=config
                )
            )
        )

    def _call(self, call: Any) -> Any:
        try:
            return call()
        except self._refusals as error:
            raise _refused(error) from error
        except (ValueError, TypeError, AttributeError) as error:  # no JSON, or of another shape
            raise client.garbled(error) from error
        except self._network as error:
            raise client.connection(error, isinstance(error, self._timeout)) from error


def _milliseconds(seconds: float) -> int:
    return max(1, round(1000 * seconds))


def _refused(error: Any) -> CallError:
    body = error.details if isinstance(error.details, dict) else {}
    said = body.get("error", body)
    details = said.get("details", ()) if isinstance(said, dict) else ()
    headers = getattr(error.response, "headers", None) or {}
    message = error.message or str(error)
    return client.refused(int(error.code), message, details, headers.get("retry-after"))


def _read(answer: Any) -> Answer:
    usage = answer.usage_metadata
    spent = (usage.prompt_token_count or 0, usage.candidates_token_count or 0) if usage else (0, 0)
    if not answer.candidates:
        reason = answer.prompt_feedback.block_reason if answer.prompt_feedback else None
        raise client.blocked(reason.name if reason else "", spent)
    candidate = answer.candidates[0]
    reason = candidate.finish_reason.name if candidate.finish_reason else "STOP"
    parts = (candidate.content and candidate.content.parts) or ()
    text = "".join(part.text for part in parts if part.text and not part.thought)
    if reason not in ("STOP", "FINISH_REASON_UNSPECIFIED") or not text:
        raise client.blocked("" if reason == "STOP" else reason, spent)
    return Answer(text, answer.model_version or "", *spent)
