"""Writes the reference pages in the language of the environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from heavylift.locale import catalogue


def main(folder: Path) -> None:
    """Write every page below a folder."""
    catalogue.use(catalogue.of_environment(os.environ))
    # Help texts are made when a command is loaded: not before the language is known.
    if catalogue.current() != catalogue.ENGLISH:
        from heavylift.cli import click_words

        click_words.install()
    from heavylift.cli.reference import commands, contracts, errors, facts
    from heavylift.facts.catalog import Catalog

    for pages in (
        commands.pages(),
        errors.pages(),
        facts.pages(Catalog()),
        contracts.pages(),
    ):
        for path, words in pages:
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(words, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
