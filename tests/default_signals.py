"""Start child processes with default signal handling, however the suite itself was started.

A process inherits which signals its parent ignores: SIGHUP under `nohup`, SIGINT and SIGQUIT in the
background of a shell without job control. A test that signals its child starts it through
`add_default_signals`. Run as a file, this module restores the defaults and executes the command.
"""

from __future__ import annotations

import os
import signal
import sys

SIGNAL_NAMES = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM")


def add_default_signals(*command: object) -> list[str]:
    """Return a command line that runs a command with the default action for every signal."""
    # A separate file and not `preexec_fn`, which is unsafe beside the threads of test servers.
    return [sys.executable, "-I", "-S", __file__, *map(str, command)]


def restore_defaults_and_execute(command: list[str]) -> None:
    """Restore the defaults and replace this process by the command."""
    for name in SIGNAL_NAMES:
        if signal_number := getattr(signal, name, None):  # Windows has no SIGHUP
            signal.signal(signal_number, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.execvp(command[0], command)


if __name__ == "__main__":
    restore_defaults_and_execute(sys.argv[1:])
