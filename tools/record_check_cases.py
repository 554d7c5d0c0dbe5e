"""Record one case per check from an endpoint, for the sweep over all checks.

The cases lie in `tests/golden/checks/<check>/<name>.json`.

    python tools/record_check_cases.py http://127.0.0.1:8000 llama_cpp-smollm2 --engine llama_cpp

Look at what a case expects before you commit it: that is what the check will be held to.
"""

import argparse
import asyncio
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import cast

from bringup.checks import Check, Replies
from bringup.registry import load
from bringup.transport.http_stream import HttpEndpoint, target_of
from bringup.transport.sandbox import IsolatedSandbox
from bringup.values.deployment import Ability, Deployment, Depth
from bringup.values.engine import EngineStatus, ServedModel
from bringup.values.exchange import Answer, Program, ProgramResult

CASES = Path(__file__).parents[1] / "tests" / "golden" / "checks"


def plain(value: object) -> object:
    """A record as JSON values, without the fields that have their default."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            one.name: plain(getattr(value, one.name))
            for one in fields(value)
            if one.default is MISSING or getattr(value, one.name) != one.default
        }
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in cast("Mapping[object, object]", value).items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in cast("list[object]", value)]
    return value


async def exercise(check: Check, deployment: Deployment, endpoint: HttpEndpoint) -> Replies:
    """What the check's own asks brought."""
    answers: dict[str, Answer] = {}
    programs: dict[str, ProgramResult] = {}
    sandbox = IsolatedSandbox()
    replies = Replies(answers=answers, programs=programs, everyone={})
    while check.asks and (batch := check.asks(deployment, replies)):
        for ask in batch:
            if isinstance(ask, Program):
                programs[ask.key] = await sandbox.run(ask)
            else:
                answers[ask.key] = await endpoint.send(ask)
    return replies


async def record(options: argparse.Namespace) -> None:
    """Write the cases."""
    deployment = Deployment(
        url=options.url,
        engine=EngineStatus(engine=options.engine, supports_tools=options.tools),
        model=ServedModel(id=options.model, context_tokens=options.context),
        ability=Ability[options.ability],
        depth=Depth[options.depth],
    )
    endpoint = HttpEndpoint(target_of(options.url))
    checks = cast("dict[str, Check]", load("bringup.checks", "CHECK"))
    chosen = {name: check for name, check in checks.items() if not options.check or name in options.check}
    everyone: dict[str, Mapping[str, Answer]] = {}
    for name, check in sorted(chosen.items(), key=lambda item: item[1].reads_all):
        replies = await exercise(check, deployment, endpoint)
        everyone[name] = replies.answers
        seen = Replies(
            answers=replies.answers,
            programs=replies.programs,
            everyone=dict(everyone) if check.reads_all else {},
        )
        judgement = check.judge(deployment, seen)
        case = {
            "deployment": plain(deployment),
            "answers": plain(seen.answers),
            **({"programs": plain(seen.programs)} if seen.programs else {}),
            **({"everyone": plain(seen.everyone)} if seen.everyone else {}),
            "expected": {finding.id: finding.severity.value for finding in judgement.findings},
        }
        place = CASES / name / f"{options.name}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(case, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(name, case["expected"])
    await endpoint.close()


def main() -> None:
    """Read the command line and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("name", help="name of the case, by engine and what is special")
    parser.add_argument("--check", action="append", help="only this one; can be repeated")
    parser.add_argument("--engine", default="unknown")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--context", type=int)
    parser.add_argument("--tools", action=argparse.BooleanOptionalAction)
    parser.add_argument("--ability", default="UNKNOWN", choices=Ability.__members__)
    parser.add_argument("--depth", default="QUICK", choices=Depth.__members__)
    asyncio.run(record(parser.parse_args()))


if __name__ == "__main__":
    main()
