"""Commands that die with the process that starts them, however it dies.

As a program (python -I -S guard.py PARENT_PID COMMAND...) this file becomes the command, after it
asked the kernel for a death signal. It is asked for in the child and by a program of its own, not
by a `preexec_fn`: code between fork and exec can hang in a parent that has threads. The request
outlives exec and is bound to the thread that started this process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def guarded(command: Sequence[str]) -> list[str]:
    """Returns the command in a form that dies with this process, which has to start it."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def _become(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
            sys.exit(f"prctl failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it died before the request
        sys.exit("The parent is gone.")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
