"""Run Python code in a child process with limits on memory and processor time.

For tests of hostile input: code that fills the memory or never ends fails there, not in pytest.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

# In addition to what the imports take.
MAX_MEMORY_BYTES = 500_000_000
MAX_PROCESSOR_SECONDS = 120  # of processor time; generous, so that a slow machine is no failure

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


def run_with_limits(
    setup: str, body: str, given: Any = None, memory: int = MAX_MEMORY_BYTES
) -> str:
    """Run `body` and return its output. The memory that `setup` (imports) takes does not count.

    Both can read `given`.
    """
    code = _FRAME.format(setup=setup, body=body, memory=memory, seconds=MAX_PROCESSOR_SECONDS)
    process = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return process.stdout
