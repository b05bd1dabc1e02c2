"""The `heavylift` command, also as `python -m heavylift`."""

import sys

_INTERRUPTED = 130


def run() -> None:
    """Load the command line and run it; an interruption while it loads is one like any other."""
    try:
        from heavylift.cli.main import main  # noqa: PLC0415 - loading it is what may be interrupted

        main()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    run()
