"""Python in a process of its own that may take only so much memory and processor time.

For tests of hostile input: what would fill the memory or never end dies there, with a failure here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

MEMORY = 500_000_000  # bytes beyond what the imports took
SECONDS = 120  # of processor time; generous, so that a slow machine is no failure

_FRAME = """
import json, resource, sys
given = json.loads(sys.stdin.read())
{setup}
if sys.platform == "linux":
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + {memory}, size + {memory}))
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
{body}
"""


def bounded(setup: str, body: str, given: Any = None, memory: int = MEMORY) -> str:
    """What `body` prints. `setup` (imports) is not counted; both see `given`."""
    code = _FRAME.format(setup=setup, body=body, memory=memory, seconds=SECONDS)
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
