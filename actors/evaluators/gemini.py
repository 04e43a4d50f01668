"""Gemini through google-generativeai, which this project's owner asked for.

Its support ended on 2025-11-30; `genai.py` is the same through its successor.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import requests

from actors.evaluators import client
from actors.evaluators.client import Answer, CallError
from actors.evaluators.question import Question
from common.errors import ConfigError

DEFAULT_MODEL = "gemini-3.5-flash-lite"
INSTALL = 'The gemini judge needs its client: pip install "distrl[gemini]"'


class GeminiClient:
    """Asks one Gemini model over REST."""

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
          ConfigError: google-generativeai is not installed.
        """
        self.model = model
        try:
            with warnings.catch_warnings():
                # It says at each import that its support has ended.
                warnings.simplefilter("ignore", FutureWarning)
                import google.generativeai as genai
                from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError
                from google.auth.exceptions import GoogleAuthError
                from google.protobuf.json_format import ParseError
        except ImportError as error:
            raise ConfigError(INSTALL) from error
        self._genai = genai
        self._refusals = GoogleAPICallError
        self._other = (GoogleAPIError, GoogleAuthError)
        self._garbled = (ParseError, json.JSONDecodeError, requests.exceptions.JSONDecodeError)
        options = {"api_endpoint": endpoint} if endpoint else None
        genai.configure(api_key=api_key, transport="rest", client_options=options)
        self._generation = {} if temperature is None else {"temperature": temperature}

    def describe(self, timeout_s: float) -> None:
        self._call(
            lambda options: self._genai.get_model(f"models/{self.model}", request_options=options),
            timeout_s,
        )

    def ask(self, question: Question, timeout_s: float) -> Answer:
        model = self._genai.GenerativeModel(self.model, system_instruction=question.instruction)
        parts = [
            {"mime_type": "image/jpeg", "data": part} if isinstance(part, bytes) else part
            for part in question.parts
        ]
        generation: Any = dict(self._generation)
        if question.schema is not None:
            generation["response_mime_type"] = "application/json"
            generation["response_schema"] = dict(question.schema)
        answer = self._call(
            lambda options: model.generate_content(
                parts, generation_config=generation or None, request_options=options
            ),
            timeout_s,
        )
        return _read(answer)

    def _call(self, call: Any, timeout_s: float) -> Any:
        try:
            # The client's own retries once turned a timeout of 3 s into 10 minutes.
            return call({"timeout": timeout_s, "retry": None})
        except self._refusals as error:
            code = int(error.code) if error.code is not None else 500
            raise client.refused(code, error.message, error.details) from error
        except self._garbled as error:
            raise client.garbled(error) from error
        except requests.RequestException as error:
            raise client.connection(error, isinstance(error, requests.Timeout)) from error
        except self._other as error:
            raise CallError("client", str(error)) from error


def _read(answer: Any) -> Answer:
    """Takes the answer's last text: this client can't tell thoughts, which come before it."""
    usage = answer.usage_metadata
    spent = (usage.prompt_token_count, usage.candidates_token_count)
    if not answer.candidates:
        reason = answer.prompt_feedback.block_reason
        raise client.blocked(reason.name if reason else "", spent)
    candidate = answer.candidates[0]
    reason = candidate.finish_reason.name
    texts = [part.text for part in candidate.content.parts if part.text]
    if reason not in ("STOP", "FINISH_REASON_UNSPECIFIED") or not texts:
        raise client.blocked("" if reason == "STOP" else reason, spent)
    return Answer(texts[-1], answer.to_dict().get("model_version", ""), *spent)
