"""Releases, newest first."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.cli.output import glyphs
from heavylift.cli.text import text
from heavylift.operate.releases import ReleaseList


def lines(found: ReleaseList) -> Iterator[str]:
    """The screen, line by line."""
    for each in found.releases:
        release = each.release
        word = "verified" if each.is_verified else "judged" if release.verdicts else "unjudged"
        glyph = {"verified": "ok", "judged": "fail", "unjudged": "unknown"}[word]
        current = f"  {text('releases.current')}" if each.is_current else ""
        yield text(
            "releases.line",
            glyph=glyphs()[glyph],
            number=release.number,
            word=text(f"releases.{word}"),
            at=release.created_at,
            engine=release.engine,
            version=release.engine_version,
            current=current,
        )
        details = (
            ("image", release.image_digest),
            ("revision", release.model_revision),
            ("driver", release.driver),
        )
        for key, value in details:
            if value is not None:
                yield text(f"releases.{key}", value=value)
