"""Judges made of judges."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Sequence

from actors.evaluators.verdict import Judge, JudgeError, Request, Status, Verdict

SHOWN = 5  # kinds of trouble in a sentence


class Cascade:
    """Asks one judge after the other, until one is sure.

    What a judge does not know goes to the next. A model's success has to be confirmed by the next
    one: the known mistake of such judges is to call an unfinished task done. The state of the phone
    and a person are believed at once, and so is a failure.
    """

    def __init__(self, judges: Sequence[Judge]):
        self._judges = tuple(judges)

    def judge(self, request: Request) -> Verdict:
        said: list[Verdict] = []
        for judge in self._judges:
            verdict = judge.judge(request)
            said.append(verdict)
            sure = verdict.status is Status.FAILURE or (
                verdict.status is Status.SUCCESS and verdict.source != "model"
            )
            if sure:
                break
        return _summed(said[-1], said)


class Vote:
    """Asks all of them; more than half must agree."""

    def __init__(self, judges: Sequence[Judge]):
        self._judges = tuple(judges)

    def judge(self, request: Request) -> Verdict:
        said = [judge.judge(request) for judge in self._judges]
        votes = collections.Counter(verdict.status for verdict in said)
        for status in (Status.SUCCESS, Status.FAILURE):
            if votes[status] * 2 > len(said):
                first = next(verdict for verdict in said if verdict.status is status)
                return _summed(first, said)
        reason = ", ".join(f"{votes[status]} {status}" for status in Status)
        split = dataclasses.replace(
            said[0], status=Status.UNKNOWN, reason=f"No majority: {reason}.", error="no_majority"
        )
        return _summed(split, said)


def _summed(verdict: Verdict, said: Sequence[Verdict]) -> Verdict:
    """The verdict with what all of them took."""
    if len(said) == 1:
        return verdict
    return dataclasses.replace(
        verdict,
        latency_s=sum(one.latency_s for one in said),
        attempts=sum(one.attempts for one in said),
        tokens_in=sum(one.tokens_in for one in said),
        tokens_out=sum(one.tokens_out for one in said),
        cost_usd=sum(one.cost_usd for one in said),
        cached=all(one.cached for one in said),
    )


class Watched:
    """Stops a run whose judge knows too little, or may ask no more."""

    def __init__(
        self, judge: Judge, limit: float, window: int = 50, forgiven: Collection[str] = ()
    ):
        """Makes a watch.

        Args:
          judge: Whom to watch.
          limit: The largest share of UNKNOWN ...
          window: ... of the newest so many answers.
          forgiven: Errors that don't count, for they are waited out.
        """
        self._judge, self._limit, self._forgiven = judge, limit, forgiven
        self._errors: collections.deque[str] = collections.deque(maxlen=window)

    def judge(self, request: Request) -> Verdict:
        """Passes a verdict on.

        Raises:
          JudgeError: The budget is spent, or too many of the newest answers are UNKNOWN.
        """
        verdict = self._judge.judge(request)
        if verdict.error == "budget":
            raise JudgeError(f"{verdict.reason} Raise it, or judge otherwise.")
        if verdict.error in self._forgiven:
            return verdict
        missing = verdict.status is Status.UNKNOWN
        self._errors.append(verdict.error or "unknown" if missing else "")
        errors = collections.Counter(error for error in tuple(self._errors) if error)
        asked, failed = len(self._errors), errors.total()
        if asked == self._errors.maxlen and failed > self._limit * asked:
            kinds = ", ".join(f"{count} {error}" for error, count in errors.most_common(SHOWN))
            raise JudgeError(
                f"The judge did not answer {failed} of its last {asked} questions, more than the "
                f"{self._limit:.0%} that --judge-unknown-limit allows: {kinds}. "
                f"The last says: {verdict.reason}"
            )
        return verdict


class Audited:
    """Answers as one judge does, and asks another one the same for the record."""

    def __init__(self, judge: Judge, other: Judge):
        self._judge, self._other = judge, other

    def judge(self, request: Request) -> Verdict:
        verdict = self._judge.judge(request)
        self._other.judge(request)
        return verdict
