"""Tests that signal their children do not depend on how the suite was started."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.default_signals import NAMES, with_default_signals

IGNORES_ALL = f"""
import signal, subprocess, sys
for name in {NAMES}:
    signal.signal(getattr(signal, name), signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"""
TELLS = f"""
import signal
print([signal.getsignal(getattr(signal, name)) == signal.SIG_IGN for name in {NAMES}],
      signal.SIGHUP in signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_a_child_hears_what_its_parent_ignores() -> None:
    child = [sys.executable, "-c", TELLS]
    deaf = [sys.executable, "-c", IGNORES_ALL]
    inherited = subprocess.run([*deaf, *child], capture_output=True, text=True, check=True)
    assert inherited.stdout.split() == ["[True,", "True,", "True,", "True]", "True"]
    through = [*deaf, *with_default_signals(*child)]
    restored = subprocess.run(through, capture_output=True, text=True, check=True)
    assert restored.stdout.split() == ["[False,", "False,", "False,", "False]", "False"]
