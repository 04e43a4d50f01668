"""A judge beside the actor: the same episodes, sooner acted, and nothing learned from a guess."""

import threading
import time

import numpy as np
import pytest

from actors.environment import PhoneEnvironment
from actors.evaluators.background import AHEAD, Background
from actors.evaluators.state import StateJudge
from actors.evaluators.verdict import Status, Verdict
from actors.rollout import Signature, run_episode
from actors.waiting import Waiting, decided
from common.errors import DeviceError
from common.types import Ending
from tests.actors.fakes import COMPLETE, NOTHING, TAP, FakeDevice, task
from tests.actors.test_rollout import Script

WAIT_S = 10.0


class Gate:
    """Judges by the state that was taken down, once it is let through."""

    def __init__(self, open_=False):
        self.open = threading.Event()
        self.fails: set[int] = set()  # numbers of decisions whose verdict is missing
        self.seen: list[int] = []
        if open_:
            self.open.set()

    def judge(self, request):
        assert self.open.wait(WAIT_S)
        self.seen.append(len(request.decisions))
        if len(request.decisions) in self.fails:
            return Verdict(Status.UNKNOWN, "", "model", error="breaker_open")
        return StateJudge().judge(request)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def background(gate):
    with Background(gate, reads_phone=True) as judge:
        yield judge


def run(judge, count, *texts, device=None, horizon=9, **options):
    environment = PhoneEnvironment(device or FakeDevice(), judge, {"general": horizon})
    episode = run_episode(
        environment, Script(*texts), task(count), 7, Signature("a", "b", 3), **options
    )
    return environment, episode


def columns(episode):
    t = episode.trajectory
    return [x.tolist() for x in (t.reward, t.discount, t.mask, t.invalid, t.repeats, t.action_ids)]


@pytest.mark.parametrize(
    ("count", "texts"),
    [
        (2, [TAP, TAP]),
        (2, [NOTHING, TAP, [TAP], TAP, TAP]),
        (9, [TAP] * 5),
        (3, [TAP, COMPLETE]),
        (1, [TAP, TAP, TAP]),
        (4, [TAP, [NOTHING], TAP, TAP, TAP]),
    ],
)
def test_it_finds_the_same_episode(gate, background, count, texts):
    """However late the verdicts come: here only when the actor has to wait for them."""
    _, at_once = run(StateJudge(), count, *texts, horizon=5, keep_screens=True)
    timer = threading.Timer(0.05, gate.open.set)
    timer.start()
    _, late = run(background, count, *texts, *[TAP] * AHEAD, horizon=5, keep_screens=True)
    timer.join()
    assert late.ending is at_once.ending
    assert columns(late) == columns(at_once)
    assert (late.actions, late.prompts) == (at_once.actions, at_once.prompts)
    assert len(late.screens) == len(at_once.screens)


def test_the_actor_goes_on_while_the_judge_thinks(gate, background):
    environment = PhoneEnvironment(FakeDevice(), background, {"general": 9})
    start = time.monotonic()
    environment.reset(task(1), 7)
    steps = [environment.step(TAP) for _ in range(AHEAD - 1)]
    assert time.monotonic() - start < 1.0
    assert [step.verdict for step in steps] == [None] * (AHEAD - 1)
    gate.open.set()
    time.sleep(0.1)
    step = environment.step(TAP)
    assert (step.ending, step.late, step.reward) == (Ending.SUCCESS, AHEAD - 1, 1.0)


def test_an_action_that_seemed_to_do_nothing_but_completed_the_task_is_valid(gate, background):
    class Lamp(FakeDevice):
        def shell(self, command):
            on = ("tap", (0.8, 0.5)) in self.calls
            return super().shell(command)[0].replace("0", "1" if on else "0"), "", 0

    threading.Timer(0.05, gate.open.set).start()
    _, episode = run(background, 1, NOTHING, *[TAP] * AHEAD, device=Lamp())
    assert (episode.ending, episode.trajectory.invalid.tolist()) == (Ending.SUCCESS, [0])


def test_a_task_that_was_done_at_the_start_is_no_episode(gate, background):
    threading.Timer(0.05, gate.open.set).start()
    environment, episode = run(background, 0, *[NOTHING] * 9)
    assert episode is None and environment.already_done


@pytest.mark.parametrize("behind", [False, True])
def test_a_success_whose_start_nobody_judged_is_not_known(behind):
    gate = Gate(open_=True)
    gate.fails = {0}
    with Background(gate, reads_phone=True) as background:
        _, episode = run(background if behind else gate, 2, TAP, TAP, *[TAP] * AHEAD)
    assert episode.ending is Ending.TRUNCATED
    assert episode.cause == "judge: no verdict on the start"
    assert episode.trajectory.reward.sum() == 0


def test_a_device_that_fails_after_the_success_does_not_undo_it(gate, background):
    class Dies(FakeDevice):
        def tap(self, point_yx):
            if self.count == 2:
                raise DeviceError("fake: gone")
            super().tap(point_yx)

    threading.Timer(0.05, gate.open.set).start()
    _, episode = run(background, 2, TAP, TAP, TAP, device=Dies())
    assert (episode.ending, len(episode)) == (Ending.SUCCESS, 2)
    _, episode = run(background, 3, TAP, TAP, TAP, device=Dies())
    assert (episode.ending, episode.cause) == (Ending.TRUNCATED, "device: fake: gone")


class Knows:
    """A judge that knows in the end: success after so many decisions, or never."""

    def __init__(self, success=None):
        self.success = success
        self.away = True

    def judge(self, request):
        if self.away:
            return Verdict(Status.UNKNOWN, "", "model", error="quota")
        done = len(request.decisions) == self.success
        return Verdict(Status.SUCCESS if done else Status.FAILURE, "late", "model")


def unjudged(*texts, count=99, horizon=3):
    gate = Gate(open_=True)
    gate.fails = set(range(99))
    environment, episode = run(gate, count, *texts, horizon=horizon)
    assert episode.ending is Ending.TRUNCATED and episode.cause == "judge: breaker_open"
    return episode, environment.unsettled


@pytest.mark.parametrize("success", [None, 1, 2, 3])
def test_an_episode_waits_on_disk_and_gets_the_end_that_it_would_have_had(tmp_path, success):
    episode, asked = unjudged(TAP, TAP, TAP)
    with Waiting(tmp_path) as waiting:
        waiting.put(episode, asked)
        assert waiting.judged(Knows()) is None
    judge = Knows(success)
    judge.away = False
    with Waiting(tmp_path) as waiting:  # another process
        found = waiting.judged(judge)
        _, expected = run(StateJudge(), success or 99, TAP, TAP, TAP, horizon=3)
        assert (found.ending, found.cause) == (expected.ending, "")
        assert columns(found) == columns(expected)
        assert found.actions == expected.actions
        goals = f"Count to {success or 99}", "Count to 99"
        assert found.prompts == tuple(prompt.replace(*goals) for prompt in expected.prompts)
        assert (found.task_id, found.goal, found.seed) == (episode.task_id, episode.goal, 7)
        assert found.verdict["reason"] == "late"
        waiting.remove()
        assert len(waiting) == 0 and not list(tmp_path.iterdir())


def test_one_that_was_done_at_the_start_or_is_damaged_is_dropped_and_counted(tmp_path):
    episode, asked = unjudged(TAP, TAP, TAP)
    with Waiting(tmp_path) as waiting:
        for _ in range(3):
            waiting.put(episode, asked)
        (tmp_path / "00000001.npz").write_bytes(b"PK damaged")
        judge = Knows(success=0)
        judge.away = False
        assert waiting.judged(judge) is None
        assert (waiting.dropped, len(waiting)) == (3, 0)


def test_it_has_a_size_and_does_not_block(tmp_path):
    episode, asked = unjudged(TAP, COMPLETE)
    now = [0.0]
    judge = Knows()
    with Waiting(tmp_path, most=2, clock=lambda: now[0]) as waiting:
        waiting.put(episode, asked)
        assert not waiting.full
        waiting.put(episode, asked)
        assert waiting.full
        assert polled(waiting, judge) is None
        judge.away = False
        assert polled(waiting, judge) is None  # not asked again at once
        now[0] += 6
        assert polled(waiting, judge).ending is Ending.GAVE_UP


def polled(waiting, judge):
    """What comes of one try."""
    found = waiting.poll(judge)
    if waiting._running is not None:
        waiting._running.result(WAIT_S)
        found = waiting.poll(judge)
    return found


def test_what_is_decided_late_is_marked_to_be_learned_from():
    episode, asked = unjudged(TAP, TAP, TAP)
    assert episode.trajectory.mask.tolist() == [1, 1, 0]
    failure = decided(episode, Verdict(Status.FAILURE, "", "model"), None)
    assert failure.trajectory.mask.tolist() == [1, 1, 1]
    assert failure.trajectory.discount.tolist() == [1, 1, 0]
    assert np.shares_memory(failure.trajectory.mask, episode.trajectory.mask) is False
    assert [len(request.decisions) for request in asked] == [0, 1, 2, 3]
