"""The documentation names only what there is: pages, links, make targets, commands and their options."""

import re
from pathlib import Path

import click
import pytest

from bringup.cli.main import COMMANDS, bringup

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md") if (ROOT / name).is_file()),
]
WRITTEN = [page for page in PAGES if page.parent.name != "reference"]
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
FENCE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def named(pages):
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages]


def typed_lines(page):
    """What a reader types: the lines of console blocks that begin with `$`."""
    blocks = FENCE.findall(page.read_text(encoding="utf-8"))
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize("page", named(PAGES))
def test_links_lead_somewhere(page):
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_the_navigation_lists_every_page_once():
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(
        str(page.relative_to(ROOT / "docs")) for page in PAGES if ROOT / "docs" in page.parents
    )


@pytest.mark.parametrize("page", named(WRITTEN))
def test_make_targets_that_are_named_exist(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8")):
        assert target in targets, target
    for line in typed_lines(page):
        if line.startswith("make "):
            assert line.split()[1] in targets, line


@pytest.mark.parametrize("page", named(WRITTEN))
def test_commands_and_options_that_are_named_exist(page):
    for line in typed_lines(page):
        ours = re.search(r"(?:^|/)bringup +(.*?)(?: *#|\||>|--(?: |$)|$)", line)
        if ours is None:
            continue
        words = ours[1].split()
        if not words or words[0].startswith("-") or not words[0].islower():
            continue
        assert words[0] in COMMANDS, line
        command = bringup.get_command(click.Context(bringup), words[0])
        known = {
            flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)
        }
        for word in words[1:]:
            if word.startswith("--"):
                assert word in known, f"{line}: no option {word}"


def test_decisions_are_one_page_and_say_when_to_revisit():
    for page in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert re.match(r"\d{4}-", page.name), page.name
        assert len(text.splitlines()) <= 60, page.name
        for part in ("**Context.**", "**Choice.**", "**When to revisit.**"):
            assert part in text, f"{page.name}: {part}"
