"""Text that a script printed in sections, each begun by a line `@@ name`, to the text of each section."""

from bringup.values.host import CommandResult

MARK = "@@ "


def read_sections(text: str) -> dict[str, str]:
    r"""Text by section name, without the last line end. A section that is there and says nothing is "".

    What stands before the first mark is dropped: it is not the script's. Sections of one name are joined.

    >>> read_sections("@@ kernel\n6.1\n@@ cmdline\n")
    {'kernel': '6.1', 'cmdline': ''}
    """
    sections: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in text.split("\n"):
        if line.startswith(MARK):
            lines = sections.setdefault(line[len(MARK) :].strip(), [])
        elif lines is not None:
            lines.append(line)
    return {name: "\n".join(lines).rstrip("\n") for name, lines in sections.items()}


def first_line(text: str | None) -> str | None:
    """The first line with something in it, stripped; None when there is none."""
    return next((line.strip() for line in (text or "").split("\n") if line.strip()), None)


def why_unanswered(result: CommandResult | None) -> str:
    """Why a question brought no answer, in words that can stand after a colon."""
    if result is None:
        return "it was not asked"
    if result.skipped:
        return result.skipped
    if result.timed_out:
        return "the question ran into its time limit"
    return first_line(result.stderr) or "the answer was empty"
