"""A verification as JUnit XML, for continuous integration."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from heavylift.cli.screens.verify import check_line, title
from heavylift.cli.text import text
from heavylift.verify.records import Status, Verification


def render(record: Verification) -> str:
    """The XML: a case per check; a warning passes and is in the case's output."""
    failed = (Status.FAIL, Status.UNKNOWN)
    suite = ET.Element(
        "testsuite",
        name=f"heavylift verify {record.subject.model}",
        tests=str(len(record.checks)),
        failures=str(sum(check.status in failed for check in record.checks)),
        skipped=str(sum(check.status is Status.SKIPPED for check in record.checks)),
        time=f"{record.seconds:.3f}",
        timestamp=record.started_at,
    )
    properties = ET.SubElement(suite, "properties")
    for name in ("url", "model", "variant", "engine", "version", "release", "is_quantised"):
        value = getattr(record.subject, name)
        ET.SubElement(
            properties,
            "property",
            name=name,
            value=text("served.unknown") if value is None else _printable(str(value)),
        )
    for check in record.checks:
        group = check.id.partition(".")[0]
        case = ET.SubElement(
            suite, "testcase", classname=group, name=check.id, time=f"{check.seconds:.3f}"
        )
        evidence = "\n".join((title(check), *map(_printable, check.evidence)))
        if check.status in failed:
            message = _printable(check_line(check))
            ET.SubElement(case, "failure", message=message).text = evidence
        elif check.status is Status.SKIPPED:
            ET.SubElement(case, "skipped", message=_printable(check_line(check)))
        else:
            ET.SubElement(case, "system-out").text = evidence
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """The text without the control signs that XML has no way to write."""
    return "".join(sign if sign >= " " or sign in "\t\n" else "\ufffd" for sign in text)
