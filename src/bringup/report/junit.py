"""A report as JUnit XML: one test case per finding, so that a CI system shows it as it shows tests."""

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from bringup.values.finding import Finding, Severity
from bringup.values.report import Report

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(report: Report) -> str:
    """The report as a `testsuites` document. Warnings and failures fail, the unmeasured is skipped."""
    bad = sum(finding.severity in (Severity.FAILURE, Severity.WARNING) for finding in report.findings)
    skipped = sum(finding.severity is Severity.UNKNOWN for finding in report.findings)
    counts = {
        "tests": str(len(report.findings)),
        "failures": str(bad),
        "skipped": str(skipped),
        "errors": "0",
    }
    suites = Element("testsuites", {"name": "bringup", **counts})
    time_s = "0" if report.duration_s is None else f"{report.duration_s:.3f}"
    suite = SubElement(suites, "testsuite", {"name": _clean(report.title), "time": time_s, **counts})
    for finding in report.findings:
        _add_case(suite, report, finding)
    SubElement(suite, "system-out").text = _clean(f"{report.verdict}: {report.paragraph}")
    indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(suites, encoding="unicode") + "\n"


def _add_case(suite: Element, report: Report, finding: Finding) -> None:
    case = SubElement(suite, "testcase", classname=f"bringup.{report.kind}", name=_clean(finding.id))
    parts = (finding.summary, finding.expected, finding.explanation, finding.action)
    evidence = (f"{one.source}: {one.text}" for one in finding.evidence)
    text = _clean("\n".join(part for part in (*parts, *evidence) if part))
    summary = _clean(finding.summary)
    if finding.severity in (Severity.FAILURE, Severity.WARNING):
        SubElement(case, "failure", type=finding.severity.value, message=summary).text = text
    elif finding.severity is Severity.UNKNOWN:
        SubElement(case, "skipped", message=f"not measured: {summary}")
    else:
        SubElement(case, "system-out").text = text


def _clean(text: str) -> str:
    """`text` without the characters that XML 1.0 forbids; a model may well have produced some."""
    return _NOT_XML.sub("\ufffd", text)
