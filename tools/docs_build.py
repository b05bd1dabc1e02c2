"""Builds the documentation in three languages into `site/`, without a network: `make docs`.

The same file is the hook that mkdocs calls: it adds the reference, which is made from the code, and
turns the markers of shell blocks into a line that says what was not run.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from heavylift.cli.text import text
from heavylift.locale import catalogue

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SITE = ROOT / "site"
NAMES = {"en": "English", "zh-Hans": "简体中文", "zh-Hant": "繁體中文"}
THEME = {"en": "en", "zh-Hans": "zh", "zh-Hant": "zh-Hant"}
DERIVED = "recipes-kimi-k3"
"""A page that a tool of its own makes and keeps, in every language; it is part of the reference."""

_MARKED = re.compile(r"^```(sh|console) (.*)$", re.MULTILINE)
_DRAWN = re.compile(r"^```text drawn=.*$", re.MULTILINE)


def build(language: str) -> None:
    """Build one language. mkdocs ends the process where a link leads nowhere."""
    from mkdocs.commands.build import build as mkdocs_build  # noqa: PLC0415 - an extra
    from mkdocs.config import load_config  # noqa: PLC0415

    catalogue.use(_spoken(language))
    config = load_config(
        str(DOCS / "mkdocs.yml"),
        docs_dir=str(DOCS / language),
        site_dir=str(SITE / language),
    )
    config.theme["language"] = THEME[language]
    # Its links start at the root of a server, where a folder of languages does not lie.
    config.theme.static_templates.discard("404.html")
    config.nav = [_named(entry) for entry in config.nav]
    config.extra["alternate"] = [
        {"name": name, "link": f"../{tag}/index.html", "lang": tag} for tag, name in NAMES.items()
    ]
    config.extra["generator"] = False
    config.extra["language"] = language
    config.plugins.on_startup(command="build", dirty=False)
    mkdocs_build(config)
    config.plugins.on_shutdown()


def reference(language: str) -> dict[str, str]:
    """Path below `reference/` -> text, in a language. Help is made when it is loaded: a process."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"HEAVYLIFT_LANG": language}
        run = [sys.executable, "-m", "heavylift.cli.reference", folder]
        subprocess.run(run, env=environment, check=True)
        written = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        pages = {str(path.relative_to(folder)): path.read_text("utf-8") for path in written}
    kept = DOCS / (f"{DERIVED}.md" if language == "en" else f"{DERIVED}.{language}.md")
    return pages | {f"{DERIVED}.md": kept.read_text("utf-8")}


def on_files(files: Any, config: Any) -> Any:
    """The reference joins the pages that lie in the tree."""
    from mkdocs.structure.files import File  # noqa: PLC0415

    for path, words in reference(config.extra["language"]).items():
        files.append(File.generated(config, f"reference/{path}", content=words))
    return files


def on_page_markdown(markdown: str, **_given: Any) -> str:
    """Markers of shell blocks as a title, where the tests cannot run the block."""
    return _MARKED.sub(_titled, _DRAWN.sub(r"```text", markdown))


def _titled(found: re.Match[str]) -> str:
    needs = re.search(r"needs=(\w+)", found[2])
    if needs is None:
        return f"```{found[1]}"
    return f'```{found[1]} title="{text(f"reference.block.{needs[1]}")}"'


def _named(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    return {text(f"reference.nav.{name}"): inner for name, inner in entry.items()}


def _spoken(language: str) -> str:
    return catalogue.normalised(language) or catalogue.ENGLISH


def main() -> None:
    """Build all languages, each in a process of its own, and a page that leads to them."""
    if sys.argv[1:]:
        # What ends a strict build is said in warnings.
        said = logging.StreamHandler()
        said.setLevel(logging.WARNING)
        logging.getLogger().addHandler(said)
        build(sys.argv[1])
        return
    for language in NAMES:
        subprocess.run([sys.executable, __file__, language], check=True)
    links = "".join(
        f'<p><a href="{tag}/index.html" lang="{tag}">{name}</a></p>' for tag, name in NAMES.items()
    )
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Heavylift</title>'
    (SITE / "index.html").write_text(f"{head}<body>{links}</body></html>\n", "utf-8")


if __name__ == "__main__":
    main()
