"""Runs inside an environment with vLLM: parses commands with vLLM's own parser.

Reads a JSON list of commands (lists of words after `vllm`) and writes, for each, null or the
complaint.
"""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout

from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.entrypoints.launchers.cli_args import validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser


def complaint(parser: FlexibleArgumentParser, words: list[str]) -> str | None:
    """What the parser says against a command; None when it takes it."""
    said = io.StringIO()
    try:
        with redirect_stderr(said), redirect_stdout(said):
            validate_parsed_serve_args(parser.parse_args(words))
    except (SystemExit, Exception) as error:  # noqa: BLE001 - whatever it raises is its complaint
        return f"{error}: {said.getvalue()[-600:]}"
    return None


def main() -> None:
    """Answer on the last line of standard output."""
    parser = FlexibleArgumentParser(prog="vllm")
    ServeSubcommand().subparser_init(parser.add_subparsers(required=True, dest="subparser"))
    answers = [complaint(parser, words) for words in json.load(sys.stdin)]
    sys.stdout.write("\n" + json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
