"""Measures an agent: every entry of a panel, repeatedly, on as many phones as there are."""

from __future__ import annotations

import dataclasses
import hashlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from actors.environment import PhoneEnvironment
from actors.panel import Entry
from actors.rollout import Agent
from common.errors import AgentError, DeviceError, DistRLError
from common.types import Ending

READY_TIMEOUT_S = 60.0
TRIES = 2  # of an episode that a phone cut short
_POLL_S = 0.1


@dataclasses.dataclass(frozen=True)
class Result:
    """How one episode went.

    Attributes:
      index: Of the panel's entry.
      repeat: The how many-th time.
      seed: The phone's layout.
      outcome: An ending's name; "unknown" where the judge did not know; "done_at_start" where there
        was nothing to do.
      cause: What failed, for a truncated or unknown one.
      steps: Actions that were taken.
      invalid: How many of them were invalid or changed nothing.
      unparsable: How many of them had no meaning.
      wall_s: How long it took.
      actions: Their texts.
    """

    index: int
    repeat: int
    task_id: str
    goal: str
    template: str
    family: str
    suite: str
    seed: int
    outcome: str
    cause: str = ""
    steps: int = 0
    invalid: int = 0
    unparsable: int = 0
    wall_s: float = 0.0
    actions: tuple[str, ...] = ()

    @property
    def success(self) -> bool:
        return self.outcome == Ending.SUCCESS

    @property
    def judged(self) -> bool:
        """It counts: neither device nor judge failed, and there was something to do."""
        return self.outcome in (Ending.SUCCESS, Ending.GAVE_UP, Ending.HORIZON)


def play(
    environment: PhoneEnvironment, agent: Agent, entry: Entry, index: int, repeat: int
) -> Result:
    """Runs one episode.

    Raises:
      DeviceError: The phone can't be reset.
    """
    start, (task, seed) = time.monotonic(), entry
    texts: list[str] = []
    invalid: list[str] = []

    def result(outcome: str, cause: str = "") -> Result:
        return Result(
            index,
            repeat,
            task.id,
            task.goal,
            task.template,
            task.family,
            task.suite,
            seed,
            outcome,
            cause,
            len(texts),
            sum(map(bool, invalid)),
            sum(name not in ("", "no_change") for name in invalid),
            round(time.monotonic() - start, 3),
            tuple(texts),
        )

    observation = environment.reset(task, seed)
    if environment.already_done:
        return result("done_at_start")
    agent.begin(task, episode_seed(entry, repeat))
    while True:
        try:
            move = agent.act(observation)
        except (AgentError, DeviceError) as error:
            return result(Ending.TRUNCATED, f"agent: {error}")
        step = environment.step(move.text)
        observation = step.observation
        texts.append(move.text)
        invalid.append(step.invalid)
        if step.ending is not None:
            break
    if environment.already_done:
        return result("done_at_start")
    if step.late:
        del texts[-step.late :], invalid[-step.late :]
    unknown = step.ending is Ending.TRUNCATED and step.cause.startswith("judge:")
    return result("unknown" if unknown else step.ending, step.cause)


def episode_seed(entry: Entry, repeat: int) -> int:
    """Draws from what the episode is, so that it is the same on any phone and in any order."""
    text = f"{entry.task.id} {entry.seed} {repeat}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1


@dataclasses.dataclass(frozen=True)
class Worker:
    """A phone and who acts on it.

    Attributes:
      recover: Waits until the phone works again, for so many seconds at most.
    """

    environment: PhoneEnvironment
    agent: Agent
    recover: Callable[[float], None]


def evaluate(
    workers: Sequence[Worker], entries: Sequence[Entry], repeats: int = 1
) -> Iterator[Result]:
    """Runs every entry `repeats` times and yields how each went, in no fixed order.

    An episode that a phone cut short is tried once more. A phone that does not come back is left
    out; the others take over its work.

    Raises:
      DeviceError: No phone is left.
      DistRLError: What a judge or an agent raises to stop all of it.
    """
    waiting: queue.SimpleQueue[tuple[int, int, int]] = queue.SimpleQueue()
    for repeat in range(repeats):
        for index in range(len(entries)):
            waiting.put((index, repeat, 1))
    done: queue.SimpleQueue[Result | DistRLError | None] = queue.SimpleQueue()
    stop = threading.Event()

    def work(worker: Worker) -> None:
        try:
            _work(worker)
        finally:
            done.put(None)  # whatever ended it, nobody waits for it in vain

    def _work(worker: Worker) -> None:
        while not stop.is_set():
            try:
                index, repeat, number = waiting.get(timeout=_POLL_S)
            except queue.Empty:  # another phone may still give something back
                continue
            try:
                result = _tried(worker, entries[index], index, repeat)
                if result.outcome == Ending.TRUNCATED:
                    worker.recover(READY_TIMEOUT_S)
            except DeviceError as error:  # it is gone for good; another phone may do it
                waiting.put((index, repeat, number))
                done.put(error)
                return
            except DistRLError as error:
                done.put(error)
                return
            if result.outcome == Ending.TRUNCATED and number < TRIES:
                waiting.put((index, repeat, number + 1))
            else:
                done.put(result)

    threads = [
        threading.Thread(target=work, args=(worker,), name=f"phone {i}", daemon=True)
        for i, worker in enumerate(workers)
    ]
    for thread in threads:
        thread.start()
    try:
        yield from _collected(done, len(workers), repeats * len(entries))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _collected(
    done: queue.SimpleQueue[Result | DistRLError | None], phones: int, count: int
) -> Iterator[Result]:
    missing, lost = count, DeviceError("No phone is left.")
    while missing:
        item = done.get()  # every thread ends by putting something, and every episode has an end
        if item is None:
            phones -= 1
            if not phones:
                raise lost
        elif isinstance(item, DeviceError):
            lost = item
        elif isinstance(item, DistRLError):
            raise item
        else:
            missing -= 1
            yield item


def _tried(worker: Worker, entry: Entry, index: int, repeat: int) -> Result:
    """Plays an episode; a phone that can't be reset gets a second chance."""
    try:
        return play(worker.environment, worker.agent, entry, index, repeat)
    except DeviceError:
        worker.recover(READY_TIMEOUT_S)
        return play(worker.environment, worker.agent, entry, index, repeat)
