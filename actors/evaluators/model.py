"""A judge that shows the screen to a model; whatever goes wrong with the asking is UNKNOWN."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable

from actors.evaluators import client as clients
from actors.evaluators import retry
from actors.evaluators.client import Answer, CallError, Client
from actors.evaluators.limits import Breaker, Budget, Prices, TokenBucket
from actors.evaluators.question import Protocol, Question, read_answer
from actors.evaluators.records import Cache, cache_key
from actors.evaluators.verdict import Request, Status, Verdict

QUOTA_PAUSE_S = 3600.0  # a daily quota comes back at a time that the service does not tell
_MAX_TEXT = 2000  # characters of an answer that a verdict keeps
_MAX_REASON = 400
_NOT_CALLED = ("budget", "rate_limit")


@dataclasses.dataclass(frozen=True)
class Limits:
    """What bounds the calls; shared by judges that share a service."""

    retry: retry.RetryPolicy
    bucket: TokenBucket
    breaker: Breaker
    budget: Budget
    prices: Prices


class ModelJudge:
    """Asks one model."""

    def __init__(
        self,
        client: Client,
        protocol: Protocol,
        limits: Limits,
        cache: Cache | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ):
        self._client = client
        self._protocol = protocol
        self._limits = limits
        self._cache = cache
        self._clock, self._sleep = clock, sleep
        self._rng = rng or random.Random()

    def check(self) -> None:
        """Asks whether the service takes key and model; ConfigError if it refuses them."""
        clients.ensure_usable(self._client, self._limits.retry.call_timeout_s)

    def try_out(self, request: Request) -> Verdict:
        """Judges a first request: what the service refuses of it would be refused ever after.

        Raises:
          ConfigError: The service refuses the key, the model or the question.
        """
        question = self._protocol.question(request)
        verdict = self._ask(question)
        refusal = CallError(verdict.error, verdict.reason)
        if refusal.fatal:
            raise clients.unusable(self._client, refusal)
        return verdict

    def judge(self, request: Request) -> Verdict:
        question = self._protocol.question(request)
        key = self._key(question)
        known = self._cache.get(key) if self._cache is not None else None
        if known is not None:
            return dataclasses.replace(
                known,
                cached=True,
                latency_s=0.0,
                attempts=0,
                tokens_in=0,
                tokens_out=0,
                cost_usd=0.0,
            )
        verdict = self._ask(question)
        if self._cache is not None:
            self._cache.put(key, verdict)
        return verdict

    def _key(self, question: Question) -> str:
        return cache_key(self._client.model, question.prompt_hash, question.image_hashes)

    def _ask(self, question: Question) -> Verdict:
        """Asks the model; the limits come first."""
        start, limits = self._clock(), self._limits
        blank = Verdict(
            Status.UNKNOWN,
            "",
            "model",
            self._client.model,
            prompt_hash=question.prompt_hash,
            image_hashes=question.image_hashes,
        )

        def missing(error: str, reason: str, attempts: int = 0) -> Verdict:
            latency_s = self._clock() - start
            return dataclasses.replace(
                blank, error=error, reason=reason, attempts=attempts, latency_s=latency_s
            )

        if not limits.breaker.enter():
            return missing("breaker_open", f"Nothing is asked for {limits.breaker.open_s:.0f} s.")
        try:
            answer, attempts = retry.ask(
                lambda timeout_s: call_within(limits, self._client, question, timeout_s),
                limits.retry,
                clock=self._clock,
                sleep=self._sleep,
                rng=self._rng,
            )
        except CallError as error:
            self._note(error)
            return missing(error.kind, str(error), error.attempts)
        limits.breaker.succeeded()
        status, trouble = read_answer(answer.text)
        return dataclasses.replace(
            blank,
            status=status,
            reason=" ".join(answer.text.split())[:_MAX_REASON],
            error=trouble,
            answered_by=answer.model,
            attempts=attempts,
            latency_s=self._clock() - start,
            tokens_in=answer.tokens_in,
            tokens_out=answer.tokens_out,
            cost_usd=limits.prices.cost(answer.tokens_in, answer.tokens_out),
            raw=answer.text[:_MAX_TEXT],
        )

    def _note(self, error: CallError) -> None:
        """Tells the breaker about a failure of the service; a blocked answer is none."""
        if error.kind in _NOT_CALLED:
            self._limits.breaker.leave()
        elif error.kind == "quota":
            self._limits.breaker.failed(max(QUOTA_PAUSE_S, error.retry_after_s or 0.0))
        elif error.transient or error.fatal:
            self._limits.breaker.failed(error.retry_after_s)
        else:
            self._limits.breaker.succeeded()


def call_within(limits: Limits, client: Client, question: Question, timeout_s: float) -> Answer:
    """Makes one call, in its turn and within the budget; CallError if it brings no answer."""
    if limit := limits.budget.enter():
        raise CallError("budget", f"The budget of {limit} is spent.")
    if not limits.bucket.take(timeout_s):
        raise CallError("rate_limit", "Its turn is later than it may take.")

    def spend(tokens_in: int, tokens_out: int) -> None:
        limits.budget.add(tokens_in + tokens_out, limits.prices.cost(tokens_in, tokens_out))

    try:
        answer = client.ask(question, timeout_s)
    except CallError as error:
        spend(*error.spent)
        raise
    spend(answer.tokens_in, answer.tokens_out)
    return answer
