"""A report as GitHub-flavoured Markdown, for an issue or a job summary."""

from bringup.report.words import MARKS, cell_text, visible
from bringup.values.finding import Finding, Severity
from bringup.values.report import Report, Table


def render_markdown(report: Report) -> str:
    """The report: verdict, paragraph, findings that are not OK, tables."""
    parts = [f"# {report.verdict}: {_escape(report.title)}", _escape(report.paragraph)]
    noted = [finding for finding in report.findings if finding.severity is not Severity.OK]
    if noted:
        parts.append("## Findings")
        parts += [_finding(finding) for finding in noted]
    parts += [_table(table) for table in report.tables]
    return "\n\n".join(parts) + "\n"


def _finding(finding: Finding) -> str:
    lines = [
        f"- **{MARKS[finding.severity]} {finding.severity.value}** `{finding.id}`: {_escape(finding.summary)}"
    ]
    labelled = (
        ("wanted", finding.expected),
        ("why it matters", finding.explanation),
        ("what to do", finding.action),
        ("next measurement", finding.next_measurement),
    )
    lines += [f"  - {label}: {_escape(text)}" for label, text in labelled if text]
    lines += [f"  - {_escape(one.source)}: `{_code(one.text)}`" for one in finding.evidence]
    return "\n".join(lines)


def _table(table: Table) -> str:
    head = f"| {' | '.join(table.columns)} |"
    rule = f"|{'---|' * len(table.columns)}"
    rows = [f"| {' | '.join(_escape(cell_text(cell)) for cell in row)} |" for row in table.rows]
    return "\n".join([f"## {table.title}", "", head, rule, *rows])


def _escape(text: str) -> str:
    """`text` that cannot break out of its paragraph or cell."""
    flat = visible(" ".join(text.split()))
    for character in "\\|<>*_`[]#":
        flat = flat.replace(character, f"\\{character}")
    return flat


def _code(text: str) -> str:
    """`text` for a code span: one line, no back-quotes."""
    return visible(" ".join(text.split())).replace("`", "'")
