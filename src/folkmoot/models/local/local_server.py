"""The process of a local model: the server of llama.cpp, reachable from this machine only."""

# `local_model` starts the process as `python -m folkmoot.models.local.local_server`. The first line
# of standard input is JSON with `path`, `name`, `key`, `threads`, `slots`, `context` and `longest`.
# The process answers with one line: the port, or the error. It ends after an error, or when its
# standard input ends, and therefore also if the parent process is killed.

from __future__ import annotations

import json
import os
import sys
from typing import Any

# Memory for prompts that lost their slot to another conversation. The default of llama.cpp is 8
# GiB, too much for a laptop.
CACHE_MIB = 256


def main() -> None:
    """Serve the model until the end of standard input."""
    settings = json.loads(sys.stdin.readline())
    response_file = os.fdopen(os.dup(1), "w")
    # llama.cpp prints to standard output too. Redirect its output, since the parent expects a
    # single line.
    os.dup2(2, 1)
    try:
        server = _run_server(settings)
        response: dict[str, object] = {"port": int(server.listening_address.rpartition(":")[2])}
    except Exception as error:
        # The parent reports every error to the researcher.
        response = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(response), file=response_file, flush=True)
    if "port" in response:
        sys.stdin.read()
    # A normal exit would wait for the threads of the server.
    os._exit(0)


def _run_server(settings: dict[str, Any]) -> Any:
    from xllamacpp import CommonParams, Server

    params = CommonParams()
    params.model.path = settings["path"]
    params.model_alias = {settings["name"]}
    params.hostnames = ["127.0.0.1"]
    # The operating system chooses a free port.
    params.port = 0
    params.api_keys = [settings["key"]]
    params.n_parallel = settings["slots"]
    # llama.cpp divides the context among the slots.
    params.n_ctx = settings["context"] * settings["slots"]
    params.n_predict = settings["longest"]
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    params.warmup = False
    params.cache_ram_mib = CACHE_MIB
    return Server(params)


if __name__ == "__main__":
    main()
