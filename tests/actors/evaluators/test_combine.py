"""Judges made of judges, and what stops a run."""

import itertools

import pytest

from actors.evaluators.combine import Audited, Cascade, Vote, Watched
from actors.evaluators.verdict import JudgeError, Status, Verdict
from tests.actors.evaluators.conftest import request_of

S, F, U = Status.SUCCESS, Status.FAILURE, Status.UNKNOWN


class Says:
    """Answers with one verdict after the other."""

    def __init__(self, *statuses, source="model", error="timeout"):
        self._verdicts = itertools.cycle(
            Verdict(s, "why", source, error=error if s is U else "", tokens_in=10, attempts=1)
            for s in statuses
        )
        self.asked = 0

    def judge(self, request):
        self.asked += 1
        return next(self._verdicts)


@pytest.mark.parametrize(
    ("said", "status", "asked"),
    [
        ((F, S, S), F, 1),
        ((S, S, F), F, 3),  # each success needs the next one's confirmation
        ((S, F, S), F, 2),
        ((U, S, S), S, 3),
        ((S, U, U), U, 3),  # not confirmed
        ((U, U, U), U, 3),
    ],
)
def test_a_cascade_of_models(said, status, asked):
    judges = [Says(one) for one in said]
    verdict = Cascade(judges).judge(request_of())
    assert (verdict.status, sum(judge.asked for judge in judges)) == (status, asked)
    assert (verdict.tokens_in, verdict.attempts) == (10 * asked, asked)


@pytest.mark.parametrize("status", [S, F])
def test_the_phone_s_state_is_believed_at_once(status):
    model = Says(F)
    assert Cascade([Says(status, source="state"), model]).judge(request_of()).status is status
    assert model.asked == 0
    assert Cascade([Says(U, source="state"), model]).judge(request_of()).status is F


@pytest.mark.parametrize(
    ("said", "status"),
    [("SSF", S), ("SFF", F), ("SSU", S), ("SUU", U), ("SFU", U), ("UUU", U), ("SF", U), ("SS", S)],
)
def test_a_vote_needs_more_than_half_of_all(said, status):
    names = {"S": S, "F": F, "U": U}
    verdict = Vote([Says(names[letter]) for letter in said]).judge(request_of())
    assert verdict.status is status
    assert verdict.tokens_in == 10 * len(said)
    assert bool(verdict.error) == (status is U)


def test_a_run_stops_above_the_limit_of_missing_answers():
    judge = Watched(Says(U, S, S, S), limit=0.3, window=20)
    for _ in range(40):
        judge.judge(request_of())  # a quarter is missing
    judge = Watched(Says(U, S, U, S, F), limit=0.3, window=20)
    with pytest.raises(JudgeError, match=r"did not answer 8 of its last 20 .* 8 timeout") as raised:
        for _ in range(40):
            judge.judge(request_of())
    assert "30% that --judge-unknown-limit allows" in str(raised.value)


def test_a_spent_budget_stops_a_run_at_once():
    judge = Watched(Says(S, U, error="budget"), limit=1.0)
    judge.judge(request_of())
    with pytest.raises(JudgeError):
        judge.judge(request_of())


def test_an_audited_judge_s_answer_is_the_one_that_counts():
    other = Says(S)
    assert Audited(Says(F), other).judge(request_of()).status is F
    assert other.asked == 1
