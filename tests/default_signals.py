"""Children that hear signals, however the suite itself was started.

A process inherits which signals its parent ignores: SIGHUP under `nohup`, SIGINT and SIGQUIT in the
background of a shell without job control. A test that signals its child starts it through
`with_default_signals`. Run as a file, this takes the defaults back and becomes the command.
"""

from __future__ import annotations

import os
import signal
import sys

NAMES = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM")


def with_default_signals(*command: object) -> list[str]:
    """The command line that runs a command with the default answer to every signal."""
    # A file of its own and not `preexec_fn`, which is unsafe beside the threads of test servers.
    return [sys.executable, "-I", "-S", __file__, *map(str, command)]


def become(command: list[str]) -> None:
    """Restore the defaults and replace this process by the command."""
    for name in NAMES:
        if number := getattr(signal, name, None):  # Windows has no SIGHUP
            signal.signal(number, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.execvp(command[0], command)


if __name__ == "__main__":
    become(sys.argv[1:])
