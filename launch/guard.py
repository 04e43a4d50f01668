"""Becomes a command that dies with its parent: python -I -S guard.py PARENT_PID COMMAND...

The kernel is asked for the death signal in the child and by a program of its own, not by a
`preexec_fn`: code between fork and exec can hang in a launcher that has threads. The request
outlives exec and is bound to the thread that spawned this process.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, command = int(sys.argv[1]), sys.argv[2:]
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
