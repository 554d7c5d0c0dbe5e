"""llama.cpp of some release of `xllamacpp`: `python serve_llama_cpp.py MODEL PORT ALIAS [CONTEXT_TOKENS]`."""

import sys
import threading

import xllamacpp


def main() -> None:
    """Serve until the process is ended."""
    model, port, alias = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    wanted = xllamacpp.CommonParams()
    wanted.model.path = model
    wanted.model_alias = {alias} if isinstance(wanted.model_alias, set) else alias
    if hasattr(wanted, "hostnames"):
        wanted.hostnames = ["127.0.0.1"]
    else:
        wanted.hostname = "127.0.0.1"
    wanted.port = port
    wanted.n_ctx = int(sys.argv[4]) if len(sys.argv) > 4 else 8192
    wanted.n_parallel = 4
    wanted.cpuparams.n_threads = 2
    wanted.endpoint_metrics = True
    wanted.endpoint_slots = True
    wanted.use_jinja = True
    server = xllamacpp.Server(wanted)
    threading.Event().wait()
    del server  # it serves only as long as it is held


if __name__ == "__main__":
    main()
