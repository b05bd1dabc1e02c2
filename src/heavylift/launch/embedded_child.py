"""The embedded engine's process: llama.cpp's own HTTP server, from the wheel `xllamacpp`.

Runs with the engine environment's Python, where heavylift is not installed: standard library and
xllamacpp only. Prints `READY http://…` when the API listens. The API key comes by the environment
(HEAVYLIFT_API_KEY) and there is no serving without one.

`--fit-only` stops after llama.cpp has worked out what the model would take: it reads the header and
prints its memory table without reading a weight, so a header over a hole will do.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys

KEY_VARIABLE = "HEAVYLIFT_API_KEY"
PARENT_VARIABLE = "HEAVYLIFT_RUNNER_PID"
READY = "READY"
# The last line of llama.cpp's fit pass, whether the model fits or not.
FIT_DONE = b"common_fit_params: fitting params to free memory took"
# From this level on llama.cpp prints the size of each buffer; one more for those of the fit pass.
VERBOSITY_SIZES = 4
VERBOSITY_FIT_SIZES = 5
# Nobody but the person at this machine has business with the API; a web page has not.
NO_ORIGIN = "http://127.0.0.1"

PR_SET_PDEATHSIG = 1
EXIT_USAGE = 2
EXIT_NO_TABLE = 3


def main() -> int:
    """Serve until a signal comes, or print the memory table."""
    options = _options()
    for number in (signal.SIGTERM, signal.SIGINT):
        # The default action ends the process even while it is inside a long call of the library.
        signal.signal(number, signal.SIG_DFL)
    _die_with_parent(int(os.environ.get(PARENT_VARIABLE, os.getppid())))
    if options.fit_only:
        return _fit(options)
    key = os.environ.pop(KEY_VARIABLE, "")
    if not key:
        sys.stderr.write(f"{KEY_VARIABLE} is not set\n")
        return EXIT_USAGE
    server = _server(options, key)
    announce(server.listening_address)
    while True:
        signal.pause()


def announce(address: str) -> None:
    """Say on a line of its own where the API listens.

    llama.cpp's log thread writes to the same file, each line in several pieces: whatever piece was
    last, ours begins a line.
    """
    sys.stdout.write(f"\n{READY} {address}\n")
    sys.stdout.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--context-tokens", type=int, required=True)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--embeddings", action="store_true")
    parser.add_argument("--fit-only", action="store_true")
    return parser.parse_args()


def _die_with_parent(parent: int) -> None:
    """Ask the kernel to end this process when the one that started it is gone."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went before the request was made
        sys.exit(0)


def _server(options: argparse.Namespace, key: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - xllamacpp exists only in the engine environment
    import xllamacpp  # type: ignore[import-not-found] # noqa: PLC0415 - not before the fork

    parameters = xllamacpp.CommonParams()
    parameters.model.path = options.model
    parameters.model_alias = {options.alias}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = options.port
    parameters.cors_origins = NO_ORIGIN
    parameters.n_ctx = options.context_tokens
    parameters.n_parallel = options.slots
    parameters.cpuparams.n_threads = options.threads
    # By default llama.cpp keeps up to 8 GiB of old prompts in the host's memory, which no plan
    # counts.
    parameters.cache_ram_mib = 0
    parameters.endpoint_metrics = True
    parameters.endpoint_slots = True
    parameters.endpoint_props = True
    parameters.verbosity = VERBOSITY_FIT_SIZES if options.fit_only else VERBOSITY_SIZES
    parameters.warmup = not options.fit_only
    if options.embeddings:
        # Beside chat, not in its place. A model made for chat states no pooling of its own.
        parameters.embedding = True
        parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    if key:
        parameters.api_keys = [key]
    return xllamacpp.Server(parameters)


def _fit(options: argparse.Namespace) -> int:
    """Run the engine in a child of our own and end it once its fit pass has printed its table."""
    reader, writer = os.pipe()
    watcher = os.getpid()
    engine = os.fork()
    if engine == 0:
        _die_with_parent(watcher)
        os.close(reader)
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        _server(options, "")
        os._exit(0)
    os.close(writer)
    try:
        with os.fdopen(reader, "rb") as lines:
            for line in lines:
                sys.stdout.buffer.write(line)
                if FIT_DONE in line:
                    return 0
    finally:
        sys.stdout.buffer.flush()
        os.kill(engine, signal.SIGKILL)
        os.waitpid(engine, 0)
    return EXIT_NO_TABLE


if __name__ == "__main__":
    sys.exit(main())
