import inspect
import json
import re
from dataclasses import make_dataclass
from xml.etree import ElementTree as ET

import pytest

from bringup.report.json import plain_record, render_json
from bringup.report.junit import render_junit
from bringup.report.markdown import render_markdown
from bringup.report.text import render_svg, render_text
from bringup.values import engine, host
from bringup.values import report as report_values
from bringup.values.finding import Evidence, Severity

NUMBERS = ("96,721", "97,887", "530", "84.04", "0.0531", "131,072", "563,000")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_no_width_loses_a_number_or_overflows(report, width):
    text = render_text(report, width=width, color=False, show_all=True)
    assert max(map(len, text.splitlines())) <= width
    for number in NUMBERS:
        assert number in text, number


def test_plain_text_has_no_escape_and_no_ellipsis(report):
    text = render_text(report, width=80, color=False, show_all=True)
    assert "\x1b" not in text
    assert "…" not in text


def test_severities_are_readable_without_colour(report):
    text = render_text(report, width=100, color=False)
    assert re.search(r"^x failure +arithmetic", text, re.MULTILINE)
    assert re.search(r"^! warning +exposure", text, re.MULTILINE)
    assert re.search(r"^\? unknown +code", text, re.MULTILINE)


def test_colour_adds_only_escapes(report):
    plain = render_text(report, width=80, color=False)
    coloured = render_text(report, width=80, color=True)
    assert "\x1b[" in coloured
    stripped = (
        "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()) + "\n"
    )
    assert stripped == plain


def test_good_findings_are_shown_on_request_only(report):
    assert "+ ok" not in render_text(report, width=100, color=False)
    assert "+ ok" in render_text(report, width=100, color=False, show_all=True)


def test_model_output_cannot_control_the_terminal(deployment, judged, report_of):
    evil = Evidence(source="answer", text="\x1b[2J\x1b]0;title\x07[bold]x[/bold]\r\x9b31m")
    report = report_of(deployment, judged("fact", Severity.FAILURE, "\x1b[31mred", evidence=(evil,)))
    for text in (render_text(report, width=80, color=False), render_markdown(report)):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)
    assert "[bold]x[/bold]" in render_text(report, width=80, color=False)


def test_json_names_units_and_writes_from_and_to(report):
    value = json.loads(render_json(report))
    assert value["schema"] == "bringup/report/1"
    assert value["facts"]["host"]["gpus"][0]["memory_used_bytes"] == 96721 * 1024 * 1024
    assert value["facts"]["host"]["gpus"][4]["power_w"] == 34.3
    fix = value["findings"][0]["fixes"][0]
    assert (fix["from"], fix["to"]) == ("auto", "bfloat16")
    assert [one["value"] for one in value["measurements"]] == [84.04, 0.0531, None]


UNITS = {"bytes": "_bytes", "watts": "_w", "degrees Celsius": "_c", "MHz": "_mhz", "Unix time, seconds": "_s"}


@pytest.mark.parametrize("module", [engine, host, report_values], ids=lambda module: module.__name__)
def test_every_field_with_a_unit_names_it_in_json(module):
    source = inspect.getsource(module)
    for name, comment in re.findall(r"^    (\w+): [^#\n]*# (.*)$", source, re.MULTILINE):
        suffix = next((suffix for words, suffix in UNITS.items() if comment.startswith(words)), "")
        written = list(plain_record(make_dataclass("Record", [name])(1)))
        assert all(one.endswith(suffix) for one in written), f"{name}: {comment}"


def test_junit_counts_and_survives_control_characters(report):
    suites = ET.fromstring(render_junit(report))
    assert (suites.get("tests"), suites.get("failures"), suites.get("skipped")) == ("5", "2", "1")
    assert len(list(suites.iter("testcase"))) == 5
    assert {case.get("name") for case in suites.iter("testcase") if case.find("failure") is not None} == {
        "arithmetic",
        "exposure",
    }


def test_markdown_cells_cannot_break_out(report):
    text = render_markdown(report)
    rows = [line for line in text.splitlines() if line.startswith("| does arithmetic")]
    assert len(rows) == 1
    assert len(re.split(r"(?<!\\)\|", rows[0])) == 5  # three cells between four bars
    assert "<b>" not in re.sub(r"`[^`]*`", "", text)


def test_svg_is_one_well_formed_picture_without_outside_references(report):
    svg = render_svg(report, title="bringup verify")
    ET.fromstring(svg)
    assert "530" in svg
    assert "url(http" not in svg
    assert "@font-face" not in svg
    assert render_svg(report, title="bringup verify") == svg
