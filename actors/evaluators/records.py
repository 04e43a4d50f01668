"""One line a verdict, and what can be read back: a cache, or a judge that replays."""

from __future__ import annotations

import collections
import json
import pathlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from actors.evaluators.verdict import Judge, Request, Status, Verdict, unknown
from common.errors import ConfigError

CACHE_SIZE = 20_000  # answers


class Record(NamedTuple):
    """A verdict on a request.

    Attributes:
      request: The request's key.
      judge: Who judged, as the run's configuration names it.
      task_id: The task.
      goal: Its goal.
      step: Decisions that had been taken.
      verdict: The answer.
    """

    request: str
    judge: str
    task_id: str
    goal: str
    step: int
    verdict: Verdict


class Recorded:
    """Writes down what a judge answers, as JSON lines."""

    def __init__(self, judge: Judge, name: str, path: pathlib.Path):
        """Appends to a file.

        Raises:
          ConfigError: It can't be written.
        """
        self._judge, self._name = judge, name
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise ConfigError(f"Verdicts can't be written to {path}: {error}.") from error

    def judge(self, request: Request) -> Verdict:
        verdict = self._judge.judge(request)
        record = Record(
            request.key(),
            self._name,
            request.task.id,
            request.task.goal,
            len(request.decisions),
            verdict,
        )
        values = record._asdict() | {"verdict": verdict.record(), "time": round(time.time(), 3)}
        with self._lock:
            self._file.write(json.dumps(values) + "\n")
        return verdict

    def close(self) -> None:
        self._file.close()


def read_records(path: pathlib.Path) -> Iterator[Record]:
    """Yields what `Recorded` wrote; a last line that was cut is left out.

    Raises:
      ConfigError: The file can't be read, or holds something else.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Verdicts can't be read from {path}: {error}.") from error
    for number, line in enumerate(lines, 1):
        try:
            values: dict[str, Any] = json.loads(line)
            verdict = Verdict.from_record(values["verdict"])
            fields = {name: values[name] for name in Record._fields}
            yield Record(**fields | {"verdict": verdict})
        except (ValueError, KeyError, TypeError) as error:
            if number < len(lines):
                raise ConfigError(f"{path}, line {number} is no verdict: {error!r}.") from error


def cache_key(model: str, prompt_hash: str, image_hashes: Iterable[str]) -> str:
    """Names all that an answer depends on; the goal is part of the prompt."""
    return " ".join((model, prompt_hash, *image_hashes))


class Cache:
    """The newest answers by what was asked; an answer that is missing is never one of them."""

    def __init__(self, size: int = CACHE_SIZE):
        self._size = size
        self._answers: collections.OrderedDict[str, Verdict] = collections.OrderedDict()
        self._lock = threading.Lock()

    def load(self, path: pathlib.Path) -> None:
        """Takes in the models' answers of a file of verdicts."""
        for record in read_records(path):
            verdict = record.verdict
            if verdict.source == "model" and verdict.prompt_hash:
                self.put(
                    cache_key(verdict.model, verdict.prompt_hash, verdict.image_hashes), verdict
                )

    def get(self, key: str) -> Verdict | None:
        with self._lock:
            if key in self._answers:
                self._answers.move_to_end(key)
            return self._answers.get(key)

    def put(self, key: str, verdict: Verdict) -> None:
        if verdict.status is Status.UNKNOWN:
            return
        with self._lock:
            self._answers[key] = verdict
            if len(self._answers) > self._size:
                self._answers.popitem(last=False)


class ReplayJudge:
    """Gives the answers of a file of verdicts, to the same questions.

    Where a question was answered more than once, the newest known answer counts.
    """

    def __init__(self, path: pathlib.Path, judge: str = ""):
        """Reads a file.

        Args:
          path: Of `Recorded`.
          judge: Whose verdicts; may be left out where the file has those of one alone.

        Raises:
          ConfigError: There are none, or those of several judges.
        """
        records = list(read_records(path))
        names = sorted({record.judge for record in records})
        if not judge and len(names) > 1:
            raise ConfigError(
                f"{path} holds verdicts of {', '.join(names)}: name one, as in "
                f"replay:{path}@{names[0]}."
            )
        self._verdicts = {
            record.request: record.verdict
            for record in records
            if record.judge == (judge or names[0]) and record.verdict.status is not Status.UNKNOWN
        }
        if not self._verdicts:
            raise ConfigError(f"{path} holds no verdict{f' of {judge}' * bool(judge)} to replay.")

    def judge(self, request: Request) -> Verdict:
        found = self._verdicts.get(request.key())
        if found is None:
            said = "This question was not answered when the verdicts were recorded."
            return unknown(said, "model", "not_recorded")
        return found
