"""The `heavylift` command, also as `python -m heavylift`."""

import os
import sys

_INTERRUPTED = 130


def run() -> None:
    """Load the command line and run it; an interruption while it loads is one like any other."""
    # Loading is what may be interrupted, and what already needs to know the language.
    try:
        from heavylift.locale import catalogue  # noqa: PLC0415

        catalogue.use(catalogue.wanted(sys.argv[1:], os.environ))
        if catalogue.current() != catalogue.ENGLISH:
            from heavylift.cli import click_words  # noqa: PLC0415

            click_words.install()
        from heavylift.cli.main import main  # noqa: PLC0415

        main()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    run()
