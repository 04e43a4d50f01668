"""The judge that reads the phone's state: exact, free, and the reference for the others."""

from __future__ import annotations

import re
import time

from actors.evaluators.verdict import Request, Status, Verdict

_MARK = "__end_of_check__"


class StateJudge:
    """Runs all of a task's checks in one round trip to the phone."""

    def judge(self, request: Request) -> Verdict:
        start = time.monotonic()
        checks = request.task.checks
        # The newline ends a check's last line; it may print nothing.
        script = "; ".join(f"{check.shell}; echo; echo {_MARK}" for check in checks)
        output = request.shell(script)[0].split(_MARK)
        latency_s = time.monotonic() - start
        if not checks or len(output) != len(checks) + 1:
            reason = f"{len(checks)} checks gave {len(output) - 1} answers."
            return Verdict(Status.UNKNOWN, reason, "state", latency_s=latency_s, error="bad_answer")
        for check, said in zip(checks, output, strict=False):
            if not re.search(check.matches, said.strip(), re.MULTILINE):
                reason = f"{check.shell!r} does not show {check.matches!r}."
                return Verdict(Status.FAILURE, reason, "state", latency_s=latency_s)
        return Verdict(Status.SUCCESS, "All checks hold.", "state", latency_s=latency_s)
