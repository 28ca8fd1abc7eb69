"""The process that holds a local model: llama.cpp's server on loopback while its parent lives.

Started by `local_model` as `python -m folkmoot.models.local.local_server`. The first line of
standard input is JSON with `path`, `name`, `key`, `threads`, `slots`, `context` and `longest`, and
one line comes back: the port, or what went wrong. The end of standard input, which comes however
the parent ends, ends this process too.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

CACHE_MIB = 256  # MiB for prompts whose slot went to others; llama.cpp's own bound is 8 GiB


def main() -> None:
    """Serve until standard input ends."""
    wanted = json.loads(sys.stdin.readline())
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # llama.cpp prints to standard output, too
    try:
        server = _run_server(wanted)
        said: dict[str, object] = {"port": int(server.listening_address.rpartition(":")[2])}
    except Exception as error:  # the parent says it to the user, whatever it is
        said = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(said), file=answer, flush=True)
    sys.stdin.read()
    os._exit(0)  # threads of the server would hold a normal end up


def _run_server(settings: dict[str, Any]) -> Any:
    from xllamacpp import CommonParams, Server

    params = CommonParams()
    params.model.path = settings["path"]
    params.model_alias = {settings["name"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["key"]]
    params.n_parallel = settings["slots"]
    params.n_ctx = settings["context"] * settings["slots"]
    params.n_predict = settings["longest"]
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    params.warmup = False
    params.cache_ram_mib = CACHE_MIB
    return Server(params)


if __name__ == "__main__":
    main()
