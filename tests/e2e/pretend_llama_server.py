"""llama.cpp's own server by its own flags, out of the wheel that the embedded engine comes in."""

from __future__ import annotations

import signal
import sys


def main(words: list[str]) -> None:
    """Serve the model of `--model` with the flags that a recipe has."""
    import xllamacpp  # type: ignore[import-not-found] # noqa: PLC0415 - in the engine's environment

    given = dict(zip(words[::1], [*words[1:], ""], strict=True))
    parameters = xllamacpp.CommonParams()
    parameters.model.path = given["--model"]
    parameters.model_alias = {given["--alias"]}
    parameters.hostnames = [given["--host"]]
    parameters.port = int(given["--port"])
    parameters.n_ctx = int(given["--ctx-size"])
    parameters.n_parallel = int(given["--parallel"])
    parameters.n_ubatch = int(given["--ubatch-size"])
    parameters.endpoint_metrics = "--metrics" in words
    parameters.cpuparams.n_threads = 1
    parameters.verbosity = 4
    server = xllamacpp.Server(parameters)  # held: it ends with its last reference
    while server:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
