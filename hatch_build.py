"""Compiles the translations into the wheel; a checkout reads them as they are."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from babel.messages import mofile, pofile
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Compile(BuildHookInterface[Any]):
    """`locale/LANGUAGE/AREA.po` of the checkout becomes `AREA.mo` in the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile into a temporary folder that lives as long as the build."""
        if version == "editable":
            return
        self._made = tempfile.TemporaryDirectory()
        for source in sorted(Path(self.root, "src/heavylift/locale").glob("*/*.po")):
            inside = f"heavylift/locale/{source.parent.name}/{source.stem}.mo"
            compiled = Path(self._made.name, inside)
            compiled.parent.mkdir(parents=True, exist_ok=True)
            with source.open("rb") as read, compiled.open("wb") as written:
                mofile.write_mo(written, pofile.read_po(read))
            build_data["force_include"][str(compiled)] = inside

    def finalize(self, version: str, *_: object) -> None:
        """Take the folder away."""
        if version != "editable":
            self._made.cleanup()
