"""Words of the pages in every language, and colours that can be told apart."""

from __future__ import annotations

import re
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import Final

import pytest

from heavylift.locale import catalogue, extract
from heavylift.records import deployment, finding, plan, simulation, speed

WEB: Final = Path(str(resources.files("heavylift.web")))
SEGMENTS: Final = ("weights", "kv_cache", "recurrent_state", "workspace", "outside_pool")
LEAST_DISTANCE: Final = 12.0
"""CIELAB units between two segments, for any eye; a difference of 2.3 is just seen."""
LEAST_CONTRAST: Final = 3.0
"""Of a graphic against its ground, WCAG 2.2 SC 1.4.11."""

# How eyes without one kind of cone see linear RGB: Machado, Oliveira and Fernandes 2009,
# severity 1.0 (IEEE TVCG 15(6), table 1).
EYES: Final = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}

Colour = tuple[float, float, float]


def templates() -> str:
    """All templates, one after the other."""
    return "\n".join(path.read_text("utf-8") for path in (WEB / "templates").glob("*.html"))


def test_every_text_a_template_asks_for_exists() -> None:
    """Literal keys are in the catalogue; composed ones exist for every word they are made of."""
    source = templates()
    literal = set(re.findall(r"""\bt\(["']([a-z_.0-9]+)["'](?! ~)""", source))
    assert len(literal) > 100
    composed = {
        "web.verdict.": plan.PlanVerdict,
        "web.kind.": plan.Kind,
        "web.segment.": (*plan.Segment, "headroom"),
        "web.status.": plan.Status,
        "web.status_word.": plan.Status,
        "web.speed.basis.": speed.Evidence,
        "web.simulate.verdict.": simulation.FleetVerdict,
        "web.simulate.pace.": simulation.PaceEnd,
        "web.simulate.limit.": simulation.Limit,
        "web.phase.": deployment.Phase,
        "web.severity.": finding.Severity,
    }
    stems = set(re.findall(r"""\bt\(["']([a-z_.]+\.)["'] ~""", source))
    assert set(composed) - {"web.status."} <= stems
    made = {stem + word for stem, words in composed.items() for word in words}
    assert literal | made <= catalogue.keys()


@pytest.mark.parametrize("language", catalogue.LANGUAGES[1:])
def test_the_pages_are_translated_whole(language: str) -> None:
    """No text of the pages is missing in a language, or older than its English."""
    left = [
        message.context
        for message in extract.updated(language, "web")
        if message.id and (not message.string or message.fuzzy)
    ]
    assert left == []


def test_no_words_stand_in_a_template() -> None:
    """All that is said comes from the catalogue; only names and units stand as they are."""
    bare = re.sub(r"\{[{%#].*?[}%#]\}", " ", templates(), flags=re.DOTALL)
    bare = re.sub(r"<code>.*?</code>|<[^>]+>", " ", bare, flags=re.DOTALL)
    said = set(re.findall(r"[A-Za-z]{3,}", bare))
    assert said <= {"Heavylift", "GPU", "GiB", "nbsp"}


def scheme(name: str) -> dict[str, str]:
    """The colours of a scheme by name, as the style sheet has them."""
    style = (WEB / "static" / "page.css").read_text("utf-8")
    found = re.search(
        r":root \{(.*?)\}" if name == "light" else r':root\[data-theme="dark"\] \{(.*?)\}',
        style,
        re.DOTALL,
    )
    assert found is not None
    return dict(re.findall(r"--([a-z_-]+): (#[0-9a-f]{6})", found[1]))


def linear(colour: str) -> Colour:
    """A colour of the screen as light."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return red, green, blue


def seen(light: Colour, eye: str) -> Colour:
    """What an eye makes of it."""
    red, green, blue = (
        min(1.0, max(0.0, sum(weight * part for weight, part in zip(row, light, strict=True))))
        for row in EYES[eye]
    )
    return red, green, blue


def lab(light: Colour) -> Colour:
    """CIELAB under D65."""
    red, green, blue = light
    xyz = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047,
        0.2126 * red + 0.7152 * green + 0.0722 * blue,
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883,
    )
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def contrast(one: str, other: str) -> float:
    """WCAG's contrast of two colours."""

    def luminance(colour: str) -> float:
        red, green, blue = linear(colour)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("name", ["light", "dark"])
def test_segments_are_told_apart_by_every_eye(name: str, eye: str) -> None:
    """Also without the patterns that are drawn over them."""
    colours = scheme(name)
    for one, other in combinations(SEGMENTS, 2):
        pair = (lab(seen(linear(colours[segment]), eye)) for segment in (one, other))
        distance = sum((a - b) ** 2 for a, b in zip(*pair, strict=True)) ** 0.5
        assert distance >= LEAST_DISTANCE, (one, other, distance)


@pytest.mark.parametrize("name", ["light", "dark"])
def test_graphics_stand_out_from_their_ground(name: str) -> None:
    """Segments, verdicts and lines against the panel they lie on."""
    colours = scheme(name)
    for drawn in (*SEGMENTS, "good", "warn", "bad", "accent", "budget", "dim"):
        assert contrast(colours[drawn], colours["surface"]) >= LEAST_CONTRAST, drawn


def test_the_two_dark_schemes_are_one() -> None:
    """By the system's wish or by the button: the same colours."""
    style = (WEB / "static" / "page.css").read_text("utf-8")
    blocks = re.findall(r"color-scheme: dark;(.*?)\}", style, re.DOTALL)
    assert len(blocks) == 2
    assert len({re.sub(r"\s+", " ", block) for block in blocks}) == 1
