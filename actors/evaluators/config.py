"""Flags of all launchers that judge; imports nothing that takes time."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Literal

from common.errors import ConfigError

Context = Literal["1", "2", "all"]  # screens that the judge sees
AnswerFormat = Literal["status", "json"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgeConfig:
    """Who judges, and within which bounds."""

    judge: str = "state"
    """Who says that a task is done: state (the task's checks), gemini, gemini:MODEL, openai:MODEL,
    replay:FILE (of several judges FILE@JUDGE), human, cascade:A,B,... (the next one is asked when
    one does not know, and confirms a model's success) or vote:A,B,... Keys are GEMINI_API_KEY and
    OPENAI_API_KEY."""
    judge_model: str = ""
    """Model of a plain `gemini`, if not its default."""
    judge_client: Literal["google-generativeai", "google-genai"] = "google-generativeai"
    """Through which gemini is asked."""
    judge_endpoint: str = ""
    """Where the service is, if not where its owner has it; for openai it ends with /v1."""
    judge_context: Context = "1"
    """Screens that a model sees; more than one made judges see successes that were none."""
    judge_format: AnswerFormat = "status"
    """What a model answers: a last line "Status: ...", or JSON by a schema."""
    judge_temperature: float | None = None
    """Sent only if it is given."""
    judge_timeout_s: float = 30.0
    """Of one call."""
    judge_deadline_s: float = 60.0
    """Of one question, retries and waits included."""
    judge_attempts: int = 4
    """Calls for one question."""
    judge_rate: float = 5.0
    """Calls per second, at most."""
    judge_calls: int | None = None
    """Budget of calls; when a budget is spent the run stops."""
    judge_tokens: int | None = None
    """Budget of tokens."""
    judge_usd: float | None = None
    """Budget of money; needs the prices."""
    judge_price_in: float = 0.0
    """US dollars for a million tokens of questions."""
    judge_price_out: float = 0.0
    """US dollars for a million tokens of answers."""
    judge_unknown_limit: float = 0.2
    """A run stops when a larger share of the newest 50 verdicts is missing."""
    judge_records: pathlib.Path | None = None
    """File for one line a verdict; a model's answers in it are not asked for again."""
    judge_port: int = 0
    """Of the page of `human`; 0 takes a free one."""

    def check_judge(self) -> None:
        """Raises ConfigError for a value out of range."""
        for name, low, high in (
            ("judge_timeout_s", 0.01, 600),
            ("judge_deadline_s", 0.01, 3600),
            ("judge_attempts", 1, 20),
            ("judge_rate", 0.001, 1000),
            ("judge_unknown_limit", 0, 1),
            ("judge_price_in", 0, 1e6),
            ("judge_price_out", 0, 1e6),
            ("judge_port", 0, 65535),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                flag = name.replace("_", "-")
                raise ConfigError(f"--{flag} must be in {low:g}..{high:g}, not {value}.")
        if self.judge_endpoint and not self.judge_endpoint.startswith(("http://", "https://")):
            raise ConfigError(
                f"--judge-endpoint must begin with http:// or https://, not {self.judge_endpoint}."
            )
        for name in ("judge_calls", "judge_tokens", "judge_usd"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"--{name.replace('_', '-')} must be above 0, not {value}.")
        if self.judge_usd is not None and not (self.judge_price_in and self.judge_price_out):
            raise ConfigError(
                "--judge-usd needs what a million tokens cost: --judge-price-in, --judge-price-out."
            )
