"""The small interface behind which services differ, and the names of what may go wrong there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from actors.evaluators.question import Question
from common.errors import ConfigError

_FATAL = (400, 401, 403, 404)  # the same question would be refused again
_DELAY = re.compile(r"^(\d+(?:\.\d+)?)s$")
_SHOWN = 300  # characters of what a service says


class Answer(NamedTuple):
    """What a model answered.

    Attributes:
      text: Its answer, without its thoughts.
      model: The model, as it names itself.
      tokens_in: Tokens of the question, as the service counts them.
      tokens_out: Tokens of the answer.
    """

    text: str
    model: str = ""
    tokens_in: int = 0
    tokens_out: int = 0


class CallError(Exception):
    """A call brought no answer.

    Attributes:
      kind: A short name to count by.
      transient: The same call may do better later.
      retry_after_s: The service says when.
      spent: Tokens that the call took although it brought nothing: (in, out).
      attempts: How often the same was tried in vain.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        transient: bool = False,
        retry_after_s: float | None = None,
        spent: tuple[int, int] = (0, 0),
    ):
        super().__init__(message)
        self.kind = kind
        self.transient = transient
        self.retry_after_s = retry_after_s
        self.spent = spent
        self.attempts = 1

    @property
    def fatal(self) -> bool:
        """The key, the model's name or the question is refused: a person has to change it."""
        return self.kind in {f"http_{code}" for code in _FATAL}


class Client(Protocol):
    """One model of one service. Calls end in time and are made once: retries are ours.

    Attributes:
      model: Its name.
    """

    model: str

    def describe(self, timeout_s: float) -> None:
        """Asks whether key and name are good, which costs nothing; CallError if not."""

    def ask(self, question: Question, timeout_s: float) -> Answer:
        """Asks once; CallError if no answer comes."""


def refused(
    code: int, message: str, details: Iterable[Any] = (), retry_after: str | None = None
) -> CallError:
    """Makes an error of a service's refusal.

    Args:
      code: HTTP's.
      message: What the service says.
      details: Google's error details, as in JSON: RetryInfo and QuotaFailure are understood.
      retry_after: HTTP's header of that name.
    """
    delay = _number(retry_after)
    for detail in details:
        if not isinstance(detail, Mapping):
            continue
        kind = str(detail.get("@type", "")).rpartition(".")[2]
        if kind == "RetryInfo" and (found := _DELAY.match(str(detail.get("retryDelay", "")))):
            delay = float(found[1])
        if kind == "QuotaFailure" and "PerDay" in str(detail.get("violations")):
            # Asking again today is in vain, whatever RetryInfo says.
            return CallError("quota", _short(message), retry_after_s=delay)
    transient = code in (408, 429) or code >= 500
    return CallError(f"http_{code}", _short(message), transient=transient, retry_after_s=delay)


def blocked(reason: str, spent: tuple[int, int] = (0, 0)) -> CallError:
    """Makes an error of an answer that has no text, or only the beginning of one."""
    kind = "cut" if reason == "MAX_TOKENS" else "blocked" if reason else "no_text"
    said = f"The model ended with {reason}." if reason else "The answer is empty."
    return CallError(kind, said, spent=spent)


def connection(error: Exception, timeout: bool) -> CallError:
    kind = "timeout" if timeout else "connection"
    return CallError(kind, _short(f"{type(error).__name__}: {error}"), transient=True)


def garbled(error: Exception) -> CallError:
    """The body is not what the service's answers look like: a proxy's page, or half of one."""
    return CallError("bad_answer", _short(f"{type(error).__name__}: {error}"), transient=True)


def ensure_usable(client: Client, timeout_s: float) -> None:
    """Raises ConfigError if the service refuses key or name; other trouble may pass."""
    try:
        client.describe(timeout_s)
    except CallError as error:
        if error.fatal:
            raise unusable(client, error) from error


def unusable(client: Client, error: CallError) -> ConfigError:
    return ConfigError(
        f"The judge's service refuses the key, the model {client.model!r} or a setting "
        f"({error.kind}): {error}"
    )


def _number(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"\d+(\.\d+)?", text) else None


def _short(message: str) -> str:
    return " ".join(message.split())[:_SHOWN]
