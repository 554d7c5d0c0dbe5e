"""The pages of docs/reference, written from the code itself.

python tools/gen_reference.py            write them
python tools/gen_reference.py --check    say which ones no longer match the code, and exit with 1
"""

import argparse
import ast
import dataclasses
import enum
import importlib
import inspect
import io
import sys
import tokenize
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import click

from bringup import errors, registry
from bringup.checks import Check
from bringup.cli.main import COMMANDS, bringup
from bringup.engines import Engine
from bringup.flows import probes
from bringup.machine import Subject, Target
from bringup.parse import bench_result
from bringup.report import bench_json, plain
from bringup.report import json as report_json
from bringup.rules import Rule
from bringup.values.bench import BenchRun, GeneratorRun
from bringup.values.engine import EngineStatus, ServedModel
from bringup.values.host import HostSnapshot, Question
from bringup.values.report import Report
from bringup.vendors import Vendor

FOLDER = Path("docs/reference")
HELP_WIDTH = 90  # columns, whatever the terminal of whoever runs this
EXAMPLE = Target(port=8000)  # the endpoint in the commands shown
NOTE = (
    "<!-- Written by tools/gen_reference.py from the code: change the code, then run `make reference`. -->\n"
)
PLAIN_TYPES: Mapping[object, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    object: "any value",
    type(None): "null",
}
FACTS = (EngineStatus, ServedModel, HostSnapshot)  # what `facts` of a report holds


def pages() -> dict[str, str]:
    """Every page of the reference, by file name."""
    return {
        "commands.md": commands_page(),
        "checks.md": checks_page(),
        "rules.md": rules_page(),
        "engines.md": engines_page(),
        "host-questions.md": host_page(),
        "exit-codes.md": exit_codes_page(),
        "report-json.md": report_page(),
        "bench-json.md": bench_page(),
        "bench-findings.md": bench_findings_page(),
    }


def page(title: str, *parts: str) -> str:
    """A page: a title and its parts, one blank line apart."""
    return "\n".join((NOTE, f"# {title}\n", "\n".join(part.strip("\n") + "\n" for part in parts)))


def row(*cells: str) -> str:
    """One row of a table."""
    return f"| {' | '.join(cells)} |"


def block(text: str, language: str = "text") -> str:
    """A block of text as it stands."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def doc_of(module: str) -> str:
    """The docstring of a module; single words in backticks are Markdown already."""
    return inspect.cleandoc(importlib.import_module(module).__doc__ or "")


def commands_page() -> str:
    """Every command's `--help`."""
    width = {"terminal_width": HELP_WIDTH, "max_content_width": HELP_WIDTH}
    parent = click.Context(bringup, info_name="bringup", **cast("Any", width))
    parts = [block(bringup.get_help(parent), "console")]
    for name in COMMANDS:
        command = bringup.get_command(parent, name)
        if command is None:
            raise SystemExit(f"the command `{name}` has no module")
        context = click.Context(command, info_name=name, parent=parent, **cast("Any", width))
        parts += [f"## bringup {name}", block(command.get_help(context), "console")]
    return page("Commands", *parts)


def checks_page() -> str:
    """Every check: what it shows, when it runs, what it rests on."""
    checks = cast("dict[str, Check]", registry.load("bringup.checks", "CHECK"))
    intro = (
        "What `bringup verify` checks. `--quick` runs those of depth quick, no option those of depth "
        "default, too, `--full` all. `--only NAME` and `--skip NAME` choose by name.\n\n"
        "Checks of the phase shared ask together; exclusive ones one at a time, on a quiet engine; hostile "
        "ones after them: they may break it; the last ones look at what is left of it. A check of the phase "
        "judge asks nothing and judges what is known."
    )
    rows = [
        row(f"[`{name}`](#{name})", check.title, check.section, check.depth.name.lower(), check.phase)
        for name, check in checks.items()
    ]
    table = "\n".join(("| check | title | section | depth | phase |", "|---|---|---|---|---|", *rows))
    parts = [f"## {name}\n\n{doc_of(f'bringup.checks.{name}')}" for name in checks]
    return page("Checks", intro, table, *parts)


def rules_page() -> str:
    """Every kind of failure that `bringup diagnose` knows, and the rule behind it."""
    rules = cast("dict[str, Rule]", registry.load("bringup.rules", "RULE"))
    intro = (
        "What `bringup diagnose` knows. A rule stands for one kind of failure or for several that are told "
        "apart in one place; `id` in the JSON is the kind. Only lines with one of the texts that a rule "
        "looks for, tracebacks and their neighbours are read."
    )
    rows = sorted(
        row(f"`{kind}`", f"[{rule.title}](#{name})") for name, rule in rules.items() for kind in rule.kinds
    )
    table = "\n".join(("| kind | rule |", "|---|---|", *rows))
    return page("Rules", intro, table, *(_rule_part(name, rule) for name, rule in rules.items()))


def _rule_part(name: str, rule: Rule) -> str:
    kinds = ", ".join(f"`{kind}`" for kind in rule.kinds)
    parts = (
        ("Means", rule.meaning),
        ("Told apart", rule.told_apart),
        ("Cure", rule.cure),
        ("Source", rule.source),
        ("Looks for", ", ".join(f"`{text}`" for text in rule.literals) or "probes of a host alone"),
    )
    lines = "\n".join(f"* {label}: {text}" for label, text in parts)
    return f"## {name}\n\n{rule.title[:1].upper()}{rule.title[1:]}: {kinds}\n\n{lines}"


def engines_page() -> str:
    """Every engine: how it is recognised and what its health endpoint proves."""
    engines = cast("dict[str, Engine]", registry.load("bringup.engines", "ENGINE"))
    intro = "How a server is recognised, without being told which it is. The surest engine wins."
    return page("Engines", intro, *(_engine_part(name, engine) for name, engine in engines.items()))


def _engine_part(name: str, engine: Engine) -> str:
    doc = doc_of(f"bringup.engines.{name}").partition("\n")[2].strip()
    lines = [f"## {engine.display_name}", ""]
    lines += [doc, ""] if doc else []
    lines += [f"* asked: {', '.join(f'`{path}`' for path in engine.probes)}"]
    lines += [f"* health: `{engine.health_path}`. {engine.health_meaning}"]
    lines += [f"* metrics: `{engine.metrics_path}`" if engine.metrics_path else "* metrics: not read"]
    lines += [f"* its own command line: {'read' if engine.read_command else 'not read'}"]
    return "\n".join(lines)


def host_page() -> str:
    """Every command that is run on a host."""
    intro = (
        "Everything that bringup runs on a host, for an engine on port 8000. All of it goes in one round "
        "trip, only reads, and needs nothing but a POSIX shell there. A program that is not on the host is "
        "said to be missing, never guessed at."
    )
    vendors = cast("dict[str, Vendor]", registry.load("bringup.vendors", "VENDOR"))
    subjects = cast("dict[str, Subject]", registry.load("bringup.machine", "SUBJECT"))
    parts = [intro]
    for name, vendor in vendors.items():
        parts += _questions_part(f"bringup.vendors.{name}", vendor.name, vendor.questions)
    for name, subject in subjects.items():
        parts += _questions_part(f"bringup.machine.{name}", name, subject.questions(EXAMPLE))
    parts += _questions_part(
        "bringup.flows.probes", "diagnose", probes.questions(Target(unit="vllm.service"))
    )
    return page("What is asked on a host", *parts)


def _questions_part(module: str, name: str, questions: tuple[Question, ...]) -> Iterator[str]:
    yield f"## {name}"
    yield doc_of(module)
    for question in questions:
        yield f"`{question.key}`, at most {question.time_limit_s:g} s:"
        yield block(question.script or " ".join(question.argv), "sh")


def exit_codes_page() -> str:
    """The exit codes and the errors behind them."""
    classes = [
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, errors.BringupError) and one is not errors.BringupError
    ]
    rows = [row(str(one.exit_code), f"`{one.__name__}`", _first_line(one)) for one in classes]
    table = "\n".join(("| code | error | when |", "|---|---|---|", *rows))
    tree = inspect.cleandoc(errors.__doc__ or "").partition("\n")[2].strip("\n")
    intro = (
        "A script may rely on these. What could not be measured has a code of its own: "
        "it is neither a pass nor a failure."
    )
    return page("Exit codes", intro, block(tree), table)


def _first_line(thing: type) -> str:
    return (thing.__doc__ or "").strip().partition("\n")[0]


def report_page() -> str:
    """Every record of a report in JSON, field by field."""
    intro = (
        f"`bringup verify --json` prints one object: the fields of `Report` below, and `schema`, which is "
        f"`{report_json.SCHEMA}`. Fields may be added under this name; none is renamed, removed or given "
        f"another meaning without a new one. Sizes are bytes and times are seconds; their names say so.\n\n"
        f"`null` means *not known*, never zero and never *fine*. `facts` holds `engine` (an `EngineStatus`), "
        f"`model` (a `ServedModel`), `host` and `host_after` (a `HostSnapshot` each, before and after the "
        f"exercises, or null without a host)."
    )
    return page(
        "The report as JSON", intro, *(_record_part(record) for record in records_below(Report, *FACTS))
    )


def bench_page() -> str:
    """Every record of a result of `bench` in JSON, field by field."""
    intro = (
        f"`bringup bench --json` prints one object: the fields of `BenchRun` below, and `schema`, which is "
        f"`{bench_result.SCHEMA}`. Fields may be added under this name; none is renamed, removed or given "
        f"another meaning without a new one. `null` means *not known*, never zero.\n\n"
        f"`instrument` holds what the instrument says of itself: `lag_p50_s`, `lag_p99_s`, `busy_share` and "
        f"its bounds of error (`ttft_error_s`, `itl_mean_error_s`, `itl_gap_error_s`) in the worst load, "
        f"`generators`, `warm_up_requests` and the `self_test`.\n\n"
        f"`bench -o FILE` writes the same, and in each load `runs`: what every generator recorded, the "
        f"requests column by column (`records`), their times in nanoseconds after the load's start."
    )
    records = [
        record for record in records_below(BenchRun, GeneratorRun) if record.__module__ == BenchRun.__module__
    ]
    return page("The result of a bench as JSON", intro, *(_record_part(record) for record in records))


def bench_findings_page() -> str:
    """What `bench` may have to say of a run."""
    judges = registry.load("bringup.stats.findings", "JUDGE")
    intro = (
        "What `bringup bench` says of a run beside its figures. What only informs is a note; what makes a "
        "figure doubtful, or breaks what was asked, is a warning and exit code 1; a failure is a run whose "
        "figures mean nothing."
    )
    parts = [f"## {name}\n\n{doc_of(f'bringup.stats.findings.{name}')}" for name in judges]
    return page("Findings of a bench", intro, *parts)


def records_below(*roots: type) -> tuple[type, ...]:
    """`roots` and every record that one of their fields can hold, each once, nearest first."""
    found: list[type] = []
    waiting = list(roots)
    while waiting:
        record = waiting.pop(0)
        if record not in found:
            found.append(record)
            for hint in typing.get_type_hints(record).values():
                waiting += [part for part in parts_of(hint) if dataclasses.is_dataclass(part)]
    return tuple(found)


def parts_of(hint: object) -> Iterator[type]:
    """Every class that a type hint names."""
    if isinstance(hint, type) and not typing.get_args(hint):
        yield hint
    for argument in typing.get_args(hint):
        yield from parts_of(argument)


def _record_part(record: type) -> str:
    hints = typing.get_type_hints(record)
    comments = field_comments(record)
    rows = [
        row(f"`{wire_name(record, field.name)}`", type_text(hints[field.name]), comments.get(field.name, ""))
        for field in dataclasses.fields(cast("Any", record))
    ]
    doc = inspect.cleandoc(record.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    return "\n".join(
        (f"## {record.__name__}\n\n{doc}\n", "| field | value | meaning |", "|---|---|---|", *rows)
    )


def wire_name(record: type, field: str) -> str:
    """The name of a record's field in JSON, as the renderer itself writes it."""
    if record.__module__ == BenchRun.__module__:
        return bench_json.wire_name(record, field)
    empty = object.__new__(record)
    for one in dataclasses.fields(cast("Any", record)):
        object.__setattr__(empty, one.name, f"the value of {one.name}")
    written = plain.plain_record(empty)
    return next(name for name, value in written.items() if value == f"the value of {field}")


def field_comments(record: type) -> dict[str, str]:
    """What the source says behind each field: the comment at the end of its line."""
    source = inspect.cleandoc("\n" + inspect.getsource(record))
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    body = cast("ast.ClassDef", ast.parse(source).body[0]).body
    return {
        node.target.id: comments.get(node.end_lineno or node.lineno, "").replace("|", "\\|")
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def type_text(hint: object) -> str:
    """A type in JSON's words, other records as links."""
    arguments = typing.get_args(hint)
    if arguments:
        return _made_of(typing.get_origin(hint), arguments)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return ", ".join(f"`{member.value}`" for member in hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    return PLAIN_TYPES[hint]


def _made_of(origin: object, arguments: tuple[object, ...]) -> str:
    """A type that is put together from others, in JSON's words."""
    texts = [type_text(one) for one in arguments if one is not Ellipsis]
    if origin in (types.UnionType, typing.Union):
        return " or ".join(dict.fromkeys(texts))
    if origin is dict:
        return f"object of {texts[1]}"
    return f"list of {texts[0]}" if Ellipsis in arguments else f"[{', '.join(texts)}]"


def main() -> None:
    """Write the pages, or compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 when a page is out of date"
    )
    options = parser.parse_args()
    wanted = {FOLDER / name: text for name, text in pages().items()}
    present = set(FOLDER.glob("*.md"))
    stale = [path for path, text in wanted.items() if path not in present or path.read_text() != text]
    stale += sorted(present - set(wanted))
    if options.check:
        for path in stale:
            print(f"{path} does not match the code; `make reference` writes it anew")
        if not stale:
            print(f"{len(wanted)} pages of {FOLDER} match the code")
        sys.exit(bool(stale))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in present - set(wanted):
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text)
    print(f"wrote {len(wanted)} pages to {FOLDER}, {len(stale)} of them changed")


if __name__ == "__main__":
    main()
