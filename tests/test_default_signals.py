"""Tests that signal their children do not depend on how the suite was started."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.default_signals import SIGNAL_NAMES, add_default_signals

IGNORES_ALL = f"""
import signal, subprocess, sys
for name in {SIGNAL_NAMES}:
    signal.signal(getattr(signal, name), signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"""
PRINTS_SIGNALS = f"""
import signal
print([signal.getsignal(getattr(signal, name)) == signal.SIG_IGN for name in {SIGNAL_NAMES}],
      signal.SIGHUP in signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_a_child_handles_signals_that_its_parent_ignores() -> None:
    child_command = [sys.executable, "-c", PRINTS_SIGNALS]
    ignoring_parent = [sys.executable, "-c", IGNORES_ALL]
    inherited = subprocess.run(
        [*ignoring_parent, *child_command], capture_output=True, text=True, check=True
    )
    assert inherited.stdout.split() == ["[True,", "True,", "True,", "True]", "True"]
    command = [*ignoring_parent, *add_default_signals(*child_command)]
    restored = subprocess.run(command, capture_output=True, text=True, check=True)
    assert restored.stdout.split() == ["[False,", "False,", "False,", "False]", "False"]
