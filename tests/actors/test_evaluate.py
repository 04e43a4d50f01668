"""Evaluation on phones that count taps: what counts, what does not, and on many phones at once."""

import random
import threading

import pytest

from actors import evaluate
from actors.agents import RandomAgent
from actors.environment import PhoneEnvironment
from actors.evaluate import Worker
from actors.evaluators.background import Background
from actors.evaluators.state import StateJudge
from actors.evaluators.verdict import JudgeError, Status, Verdict
from actors.panel import Entry
from actors.rollout import Move
from common.errors import AgentError, DeviceError
from launch import report
from tests.actors.fakes import COMPLETE, NOTHING, TAP, FakeDevice, task

HORIZON = {"general": 4}
ERRORS = (
    "timeout", "connection", "http_400", "http_401", "http_403", "http_404", "http_429", "http_500",
    "http_503", "quota", "blocked", "cut", "no_text", "bad_answer", "no_status", "two_statuses",
    "bad_json", "breaker_open", "rate_limit", "not_recorded", "no_answer", "no_majority", "client",
)  # fmt: skip


class Says:
    """An agent that repeats one text."""

    source = "policy"

    def __init__(self, text=TAP):
        self.text = text

    def begin(self, task, seed):
        self.began = task, seed

    def act(self, observation):
        return Move(self.text, None)


def worker(device=None, agent=None, judge=None, recover=lambda timeout_s: None) -> Worker:
    environment = PhoneEnvironment(device or FakeDevice(), judge or StateJudge(), HORIZON)
    return Worker(environment, agent or Says(), recover)


def run(workers, entries, repeats=1):
    found = evaluate.evaluate(workers, entries, repeats)
    return sorted(found, key=lambda result: (result.index, result.repeat))


@pytest.mark.parametrize(
    ("text", "count", "outcome", "steps", "invalid", "unparsable"),
    [
        (TAP, 2, "success", 2, 0, 0),
        (TAP, 9, "horizon", 4, 0, 0),
        (COMPLETE, 2, "gave_up", 1, 0, 0),
        (NOTHING, 2, "horizon", 4, 4, 0),
        ("nonsense", 2, "horizon", 4, 4, 4),
        (TAP, 0, "done_at_start", 0, 0, 0),
    ],
)
def test_what_an_episode_came_to(text, count, outcome, steps, invalid, unparsable):
    (result,) = run([worker(agent=Says(text))], [Entry(task(count), 5)])
    assert (result.outcome, result.steps) == (outcome, steps)
    assert (result.invalid, result.unparsable) == (invalid, unparsable)
    assert result.judged == (outcome != "done_at_start")
    assert result.actions == (text,) * steps


class Failing:
    """Judges by the phone's state, but now and then fails with an error, or only fails."""

    def __init__(self, error, share, seed=0):
        self._error, self._share, self._random = error, share, random.Random(seed)
        self._lock = threading.Lock()

    def judge(self, request):
        with self._lock:
            fails = self._random.random() < self._share
        if fails:
            return Verdict(Status.UNKNOWN, "no", "model", error=self._error)
        return StateJudge().judge(request)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("behind", [False, True])
def test_a_failed_call_is_never_a_reward_nor_in_a_success_rate(error, behind):
    entries = [Entry(task(i % 6), i) for i in range(30)]  # of 0 it is done, 5 is past the horizon
    truth = {result.index: result for result in run([worker()], entries)}
    for share in (0.3, 1.0):
        judge = Failing(error, share)
        if behind:
            judge = Background(judge, reads_phone=True)
        results = run([worker(judge=judge)], entries)
        if behind:
            judge.close()
        for result in results:
            if result.judged:  # then it is what the sure judge says of the same episode, or later
                assert truth[result.index].success or not result.success
                assert truth[result.index].outcome != "done_at_start" or not result.success
        summary = report.summarise(results)
        unknown = [result for result in results if result.outcome == "unknown"]
        assert summary["unknown"] == len(unknown)
        assert all(result.cause.startswith("judge:") for result in unknown)
        if share == 1.0:
            assert len(unknown) == 30
            assert (summary["success"], summary["n"]) == (None, 0)
            assert summary["unknown_share"] == 1.0
            assert summary["causes"] == {f"judge: {error}": 30}


def test_many_phones_share_the_work_and_change_nothing():
    def results(phones):
        workers = [worker(agent=RandomAgent(7)) for _ in range(phones)]
        entries = [Entry(task(1 + i % 4), i) for i in range(20)]
        found = run(workers, entries, repeats=3)
        return [(r.index, r.repeat, r.outcome, r.actions) for r in found]

    alone = results(1)
    assert len(alone) == 60
    assert results(4) == alone == results(1)
    assert len({actions for *_, actions in alone}) > 40  # repeats are draws of their own


def test_an_episode_that_a_phone_cut_short_is_tried_once_more():
    class Trips(FakeDevice):
        failures = 1

        def tap(self, point_yx):
            if self.failures:
                self.failures -= 1
                raise DeviceError("fake: hung")
            super().tap(point_yx)

    recovered = []
    (result,) = run([worker(Trips(), recover=recovered.append)], [Entry(task(2), 0)])
    assert (result.outcome, len(recovered)) == ("success", 1)
    device = Trips()
    device.failures = 100
    (result,) = run([worker(device)], [Entry(task(2), 0)])
    assert (result.outcome, result.judged) == ("truncated", False)
    assert result.cause == "device: fake: hung"


class Gone(FakeDevice):
    def shell(self, command):
        raise DeviceError("fake: gone")


def unrecoverable(timeout_s):
    raise DeviceError("fake: gone for good")


def test_another_phone_takes_over_from_one_that_is_lost():
    workers = [worker(Gone(), recover=unrecoverable), worker()]
    results = run(workers, [Entry(task(2), i) for i in range(5)])
    assert [result.outcome for result in results] == ["success"] * 5
    with pytest.raises(DeviceError, match="gone for good"):
        run([worker(Gone(), recover=unrecoverable)] * 2, [Entry(task(2), 0)])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_mistake_of_ours_ends_it_too():
    class Wrong(Says):
        def act(self, observation):
            raise ZeroDivisionError

    with pytest.raises(DeviceError, match="No phone is left"):
        run([worker(agent=Wrong())], [Entry(task(2), 0)])


def test_a_judge_that_stops_the_run_stops_it():
    class Stops:
        def judge(self, request):
            raise JudgeError("too much is missing")

    with pytest.raises(JudgeError, match="too much is missing"):
        run([worker(judge=Stops()), worker()], [Entry(task(2), i) for i in range(50)])


def test_an_agent_whose_service_fails_is_no_failure_of_the_agent():
    class Fails(Says):
        def act(self, observation):
            raise AgentError("http_503")

    (result,) = run([worker(agent=Fails())], [Entry(task(2), 0)])
    assert (result.outcome, result.judged) == ("truncated", False)
    assert result.cause == "agent: http_503"
