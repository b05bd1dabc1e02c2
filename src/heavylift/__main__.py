"""The `heavylift` command, also as `python -m heavylift`."""

import gc
import os
import sys

_INTERRUPTED = 130
# Classes and facts are made by the ten thousand and stay: looking for rubbish among them every 700
# is a tenth of a short command.
_COLLECT_EVERY = 50_000


def run() -> None:
    """Load the command line and run it; an interruption while it loads is one like any other."""
    gc.set_threshold(_COLLECT_EVERY)
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
