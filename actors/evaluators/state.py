"""The judge that reads the phone's state: exact, free, and the reference for the others."""

from __future__ import annotations

import time

from actors.evaluators.verdict import Request, Status, Verdict
from common.tasks import Task

_MARK = "__end_of_check__"


class StateJudge:
    """Runs all of a task's checks in one round trip to the phone."""

    def judge(self, request: Request) -> Verdict:
        start = time.monotonic()
        checks = request.task.checks
        output = request.shell(script(request.task))[0].split(_MARK) if checks else []
        latency_s = time.monotonic() - start
        if not checks:
            reason = "The task has no checks: it needs another judge."
            return Verdict(Status.UNKNOWN, reason, "state", error="no_checks")
        if len(output) != len(checks) + 1:
            reason = f"{len(checks)} checks gave {len(output) - 1} answers."
            return Verdict(Status.UNKNOWN, reason, "state", latency_s=latency_s, error="bad_answer")
        for check, said in zip(checks, output, strict=False):
            if not check.holds(said.strip()):
                reason = f"{check.shell!r} does not show {check.matches!r}."
                return Verdict(Status.FAILURE, reason, "state", latency_s=latency_s)
        return Verdict(Status.SUCCESS, "All checks hold.", "state", latency_s=latency_s)


def script(task: Task) -> str:
    """Returns the shell commands that run all checks; a newline ends each one's last line."""
    return "; ".join(f"{check.shell}; echo; echo {_MARK}" for check in task.checks)
