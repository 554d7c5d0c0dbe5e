"""The demo's engine process: llama.cpp's own server, from the `xllamacpp` package, on one loopback port.

Run as `python -m bringup.transport.demo_engine --model FILE --port N --alias NAME`. It ends by itself when
its standard input is closed, so that it never outlives the process that started it.
"""

import argparse
import importlib
import os
import sys
import threading
from typing import Any, cast

CONTEXT_TOKENS = 8192  # split over the slots: llama.cpp gives each an equal part
SLOTS = 4


def main() -> None:
    """Serve until standard input is closed."""
    parser = argparse.ArgumentParser(prog="demo_engine")
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", required=True, type=int)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--threads", required=True, type=int)
    options = parser.parse_args()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        server = serve(options.model, port=options.port, alias=options.alias, threads=options.threads)
    except RuntimeError as error:  # the server's own log above says why
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os._exit(1)  # a polite exit would wait for the reader of standard input
    threading.Event().wait()
    del server  # it serves only as long as it is held


def serve(model: str, *, port: int, alias: str, threads: int) -> object:
    """The running server; its constructor returns when the weights are loaded."""
    xllamacpp = cast("Any", importlib.import_module("xllamacpp"))  # the package has no type stubs
    wanted = xllamacpp.CommonParams()
    wanted.model.path = model
    wanted.model_alias = {alias}
    wanted.hostnames = ["127.0.0.1"]
    wanted.port = port
    wanted.n_ctx = CONTEXT_TOKENS
    wanted.n_parallel = SLOTS
    wanted.cpuparams.n_threads = threads
    wanted.endpoint_metrics = True
    wanted.endpoint_slots = True
    wanted.use_jinja = True
    return xllamacpp.Server(wanted)


def _end_with_parent() -> None:
    """Ends this process, at once, when the other end of its standard input is gone."""
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)  # the native server's threads do not listen to a polite exit


if __name__ == "__main__":
    main()
