"""A task on a phone as a reinforcement learning environment.

Observation: the screen, and the goal with the last decision as text. Action: text in the grammar of
`common.actions`. Reward: 1 when the judge says that the task is done, which ends the episode.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Protocol

import numpy as np

from actors.device import safety
from actors.device.adb import Frame
from actors.device.causes import Cause
from actors.evaluators.background import AHEAD, Background
from actors.evaluators.verdict import Judge, Request, Status, Verdict
from common import actions
from common.actions import Action, ActionType, Invalid
from common.errors import DeviceError
from common.tasks import Task
from common.types import Ending

JUDGE = "judge"  # the cause of a truncated episode that the phone is not to blame for
STATUS_BAR = 0.04  # share of the height whose changes (clock, icons) are no answer to an action
SETTLE_S = 1.5  # animations of a stock Android last up to a second
START_S = 10.0  # that an app may take to come to the front
_POLL_S = 0.1
_STARTED = re.compile(r"\bam start\b.*?\s-n\s+([\w.]+)/")
_KEYS = {
    ActionType.PRESS_BACK: "BACK",
    ActionType.PRESS_HOME: "HOME",
    ActionType.PRESS_ENTER: "ENTER",
}


class Device(Protocol):
    """What the environment needs of a phone; every method may raise DeviceError.

    Attributes:
      simulated: It knows the broadcast that resets a simulated phone to a layout seed.
      has_dialogs: Dialogs of the system may appear.
    """

    @property
    def simulated(self) -> bool: ...
    @property
    def has_dialogs(self) -> bool: ...

    def shell(self, command: str, /) -> tuple[str, str, int]: ...
    def must(self, command: str, /) -> str: ...
    def screenshot(self) -> Frame: ...
    def tap(self, point_yx: actions.Point, /) -> None: ...
    def swipe(self, touch_yx: actions.Point, lift_yx: actions.Point, /) -> None: ...
    def type_text(self, text: str, /) -> str: ...
    def dismiss_dialog(self) -> str: ...
    def key(self, name: str, /) -> None: ...
    def foreground(self) -> str: ...


@dataclasses.dataclass(frozen=True)
class Observation:
    prompt: str
    frame: Frame


@dataclasses.dataclass(frozen=True)
class StepResult:
    """What followed an action.

    Attributes:
      observation: What is to be seen now; of before the action if the device failed.
      reward: 1 if the task is done now and was not at the start, else 0.
      ending: Why the episode is over, or None while it is not.
      cause: For TRUNCATED, what failed.
      invalid: Why the action was invalid or changed nothing, a short name; "" if it was fine.
      repeats: How often in a row the same decision had been taken before.
      verdict: The judge's answer, if there is one yet.
      late: How many of the newest steps came after the screen that the verdict is about.
      disturbed: What the system put in between, such as the dialog of an app that hangs: what
        followed says nothing about the action.
    """

    observation: Observation
    reward: float
    ending: Ending | None
    cause: str
    invalid: str
    repeats: int
    verdict: Verdict | None
    late: int = 0
    disturbed: str = ""


class PhoneEnvironment:
    """Runs one task at a time on one phone.

    Attributes:
      already_done: The task was done before the first action, so that it can give no reward. A
        judge in the background may say so later: then the episode ends as truncated.
      unsettled: What the judge was asked in this episode and did not call a failure, oldest first.
    """

    def __init__(
        self,
        device: Device,
        judge: Judge,
        horizon: Mapping[str, int],
        settle_s: float | None = None,
        rules: safety.Rules = safety.NONE,
        restore: Callable[[], None] | None = None,
    ):
        """Makes an environment.

        Args:
          device: The phone.
          judge: Says when a task is done.
          horizon: The most steps of an episode by suite.
          settle_s: Wait between an action and the screenshot after it; None is what the kind of
            phone needs.
          rules: What must not happen on the phone.
          restore: Brings the phone's state of old back, if there is a way to.
        """
        self._device = device
        self._judge = judge
        self._horizon = horizon
        self._simulated = device.simulated
        default_s = 0.0 if self._simulated else SETTLE_S
        self._settle_s = default_s if settle_s is None else settle_s
        self._rules = rules
        self._restore = restore
        self._task: Task
        self._observation: Observation
        self._decisions: list[str] = []
        self._disturbed = ""
        self._screens: list[np.ndarray] = []
        self._asked: collections.deque[tuple[Request, Future[Verdict]]] = collections.deque()
        self._start_known = True
        self.unsettled: list[Request] = []
        self.already_done = False

    def reset(self, task: Task, seed: int) -> Observation:
        """Puts the phone in the task's first state.

        Raises:
          DeviceError: It does not get there.
          ConfigError: The rules don't allow what the task does beforehand.
        """
        self._rules.check(task)
        self._task = task
        self._decisions, self._screens = [], []
        self._asked.clear()
        self._start_known, self.already_done, self.unsettled = True, False, []
        setup = list(task.setup)
        if self._restore is not None:
            self._restore()
        if self._simulated:
            setup.insert(0, f"am broadcast -a org.simphone.RESET --ei seed {seed}")
        elif self._restore is None:
            self._leave_app()
        if setup:
            self._device.must(" && ".join(setup))
            self._must_show(setup[-1])
        self._observation = self._observe("")
        self._ask(wait=False)
        return self._observation

    def _leave_app(self) -> None:
        """Goes home and ends the app that was in front; what other apps keep, they keep."""
        app = self._device.foreground()
        self._device.key("HOME")
        time.sleep(self._settle_s)
        if app and app != self._device.foreground():  # the launcher itself stays
            self._device.must(f"am force-stop {app}")

    def _must_show(self, command: str) -> None:
        """Waits until the app that a command started is in front."""
        started = _STARTED.search(command)
        deadline = time.monotonic() + START_S
        while started and self._device.foreground() != started[1]:
            if time.monotonic() > deadline:
                raise DeviceError(f"{command!r} left another app in front", Cause.APP)
            time.sleep(_POLL_S)

    def step(self, text: str) -> StepResult:
        """Does what the text says. A device that fails ends the episode, it does not raise."""
        action = actions.parse(text)
        # A text without a meaning leaves no decision to look back on, and does not repeat itself.
        decision = actions.decision(text) if isinstance(action, Action) else ""
        repeats = self._repeats(decision)
        self._decisions.append(decision)
        before = self._observation
        over = self._over(action)
        try:
            invalid = self._execute(action) or self._leave_denied()
            self._observation = self._observe(decision)
            verdict, late = self._ask(wait=over is not None)
        except DeviceError as error:
            # An earlier screen may have been the success already.
            verdict, late = self._settle(wait=True)
            if verdict is None or verdict.status is not Status.SUCCESS:
                cause = f"{error.cause}: {error}"
                return StepResult(before, 0.0, Ending.TRUNCATED, cause, "", repeats, None)
            invalid, self._observation = "", before
        ending, cause = self._ending(over, verdict)
        # What completes the task has had an effect, even if none is to be seen.
        needs_effect = not _is_status(action) and ending is not Ending.SUCCESS
        if not invalid and not self._disturbed and needs_effect:
            after = self._observation.frame.image
            invalid = "" if screen_changed(before.frame.image, after) else "no_change"
        reward = float(ending is Ending.SUCCESS and not self.already_done)
        return StepResult(
            self._observation,
            reward,
            ending,
            cause,
            invalid,
            repeats,
            verdict,
            late,
            self._disturbed,
        )

    def _repeats(self, decision: str) -> int:
        count = 0
        for earlier in reversed(self._decisions):
            if not decision or earlier != decision:
                break
            count += 1
        return count

    def _execute(self, action: Action | Invalid) -> str:
        """Carries an action out; returns the short name of why it could not be, or ''."""
        if isinstance(action, Invalid):
            return action.name
        if action.type in self._rules.actions:
            return "denied_action"
        match action.type:
            case ActionType.DUAL_POINT if action.is_swipe:
                self._device.swipe(action.touch_yx, action.lift_yx)
            case ActionType.DUAL_POINT:
                self._device.tap(action.touch_yx)
            case ActionType.TYPE if not action.text:
                return "empty_text"
            case ActionType.TYPE:
                return self._device.type_text(action.text)
            case ActionType.PRESS_BACK | ActionType.PRESS_HOME | ActionType.PRESS_ENTER:
                self._device.key(_KEYS[action.type])
        return ""

    def _leave_denied(self) -> str:
        """Goes home if an app that the rules deny is in front; returns why the action was none."""
        if not self._rules.packages or self._device.foreground() not in self._rules.packages:
            return ""
        self._device.key("HOME")
        return "denied_app"

    def _observe(self, decision: str) -> Observation:
        """Returns what is to be seen, after a dialog of the system was answered if there is one."""
        if self._settle_s:
            time.sleep(self._settle_s)
        self._disturbed = self._device.dismiss_dialog() if self._device.has_dialogs else ""
        if self._disturbed and self._settle_s:
            time.sleep(self._settle_s)
        prompt = actions.prompt(self._task.goal, decision)
        return Observation(prompt, self._device.screenshot())

    def _ask(self, wait: bool) -> tuple[Verdict | None, int]:
        """Asks the judge about the screen now; the rest is as in `_settle`."""
        image = self._observation.frame.image
        decisions, earlier = tuple(self._decisions), tuple(self._screens)
        self._screens.append(image)
        request = Request(self._task, self._device.shell, image, decisions, earlier)
        answer: Future[Verdict] = Future()
        if isinstance(self._judge, Background):
            answer = self._judge.submit(request)
        else:
            answer.set_result(self._judge.judge(request))
        self._asked.append((request, answer))
        return self._settle(wait)

    def _settle(self, wait: bool) -> tuple[Verdict | None, int]:
        """Takes in the verdicts that there are, oldest first; the first success ends the episode.

        Args:
          wait: For all of them; else only while too many are missing.

        Returns:
          The newest verdict, if there is one, and how many steps came after its screen.
        """
        verdict, step = None, 0
        while self._asked and (wait or self._asked[0][1].done() or len(self._asked) > AHEAD):
            request, answer = self._asked.popleft()
            verdict, step = answer.result(), len(request.decisions)
            if verdict.status is not Status.FAILURE:
                self.unsettled.append(request)
            if step == 0:
                self.already_done = verdict.status is Status.SUCCESS
                self._start_known = verdict.status is not Status.UNKNOWN
            if verdict.status is Status.SUCCESS:
                self._asked.clear()
        return verdict, len(self._decisions) - step if verdict else 0

    def _over(self, action: Action | Invalid) -> Ending | None:
        """How the episode ends if this action is not the success."""
        if _is_status(action):
            return Ending.GAVE_UP
        return Ending.HORIZON if len(self._decisions) >= self._horizon[self._task.suite] else None

    def _ending(self, over: Ending | None, verdict: Verdict | None) -> tuple[Ending | None, str]:
        """Returns the ending, and the cause of a truncated one.

        What is not known must not be learned from: neither a last screen without a verdict, nor a
        success where the first screen has none and may have shown the same.
        """
        success = verdict is not None and verdict.status is Status.SUCCESS
        if success and self.already_done and isinstance(self._judge, Background):
            return Ending.TRUNCATED, "judge: the task was done at the start"
        if success and not self._start_known:
            return Ending.TRUNCATED, "judge: no verdict on the start"
        if success:
            return Ending.SUCCESS, ""
        if over and (verdict is None or verdict.status is Status.UNKNOWN):
            return Ending.TRUNCATED, f"judge: {verdict.error if verdict else 'no verdict'}"
        return over, ""


def screen_changed(before: np.ndarray, after: np.ndarray) -> bool:
    """Compares two screens [H, W, 3] below their status bar."""
    top = round(before.shape[0] * STATUS_BAR)
    return before is not after and not np.array_equal(before[top:], after[top:])


def _is_status(action: Action | Invalid) -> bool:
    return isinstance(action, Action) and action.is_status
