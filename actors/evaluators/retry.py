"""One policy of retries for all services; the clients make none."""

from __future__ import annotations

import dataclasses
import queue
import random
import threading
import time
from collections.abc import Callable

from actors.evaluators.client import Answer, CallError

_GRACE_S = 0.2  # a client's own timeout says more


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    """How often and for how long a question is asked.

    Attributes:
      attempts: At most.
      deadline_s: For all of them together, waits included.
      call_timeout_s: For one.
      first_wait_s: Before the second; each further wait is twice as long, up to max_wait_s.
      max_wait_s: The longest, unless the service asks for more.
    """

    attempts: int = 4
    deadline_s: float = 60.0
    call_timeout_s: float = 30.0
    first_wait_s: float = 0.5
    max_wait_s: float = 8.0


def ask(
    call: Callable[[float], Answer],
    policy: RetryPolicy,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    rng: random.Random | None = None,
) -> tuple[Answer, int]:
    """Calls until there is an answer; waits in between as the service says, or at random.

    Args:
      call: Asks once, within so many seconds.
      policy: How often.
      clock: Tells seconds.
      sleep: Waits.
      rng: Draws the waits (full jitter, so that many actors don't come back at once).

    Returns:
      The answer, and the number of attempts.

    Raises:
      CallError: The last attempt's, with an attribute `attempts`.
    """
    draw = (rng or random.Random()).uniform
    deadline = clock() + policy.deadline_s
    attempts = 0
    while True:
        attempts += 1
        try:
            return bounded(call, min(policy.call_timeout_s, deadline - clock())), attempts
        except CallError as error:
            wait_s = error.retry_after_s
            if wait_s is None:
                most_s = min(policy.max_wait_s, policy.first_wait_s * 2 ** (attempts - 1))
                wait_s = draw(most_s / 2, most_s)
            left_s = deadline - clock() - wait_s
            if not error.transient or attempts >= policy.attempts or left_s <= 0:
                error.attempts = attempts
                raise
            sleep(wait_s)


def bounded(call: Callable[[float], Answer], timeout_s: float) -> Answer:
    """Calls in a thread that is left alone when it takes too long.

    The clients' timeouts are for silence: a service that sends a byte a second would hold us for
    ever.
    """
    done: queue.SimpleQueue[tuple[Answer | None, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((call(timeout_s), None))
        except Exception as error:  # noqa: BLE001 -- it is raised below, where someone waits
            done.put((None, error))

    threading.Thread(target=run, name="judge call", daemon=True).start()
    try:
        answer, error = done.get(timeout=timeout_s + _GRACE_S)
    except queue.Empty:
        said = f"No answer within {timeout_s:.1f} s."
        raise CallError("timeout", said, transient=True) from None
    if error is not None:
        raise error
    assert answer is not None
    return answer
