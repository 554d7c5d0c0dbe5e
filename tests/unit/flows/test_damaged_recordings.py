"""Whatever a server or a host says, the run ends in a report that every format can show."""

import asyncio
import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bringup.flows import reach
from bringup.flows.verify import verify
from bringup.report.json import render_json
from bringup.report.junit import render_junit
from bringup.report.markdown import render_markdown
from bringup.report.text import render_text
from bringup.transport.recording import load

RECORDING = Path(__file__).parents[2] / "golden/recordings/demo.json.gz"
WORDS = ("1e308", "NaN", "-1", "", "0", "9" * 400)
VALUES = (
    *(None, True, 0, -1, 1e308, -1e308, 10**40, "", "x", "\0", "9" * 5000, [], {}, [[]], [None], [{}]),
    *({"content": None}, float("nan"), float("inf"), -float("inf"), "!!!!" * 50),
)


class Damage:
    """Changes values, words and ends of texts, the same ones for the same seed."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.share = self.draw.choice([0.002, 0.01, 0.05, 0.3])

    def value(self, value):
        if self.draw.random() < self.share:
            return self.draw.choice(VALUES)
        if isinstance(value, dict):
            return {key: self.value(part) for key, part in value.items() if self.draw.random() >= self.share}
        return [self.value(part) for part in value] if isinstance(value, list) else value

    def text(self, text):
        try:
            return json.dumps(self.value(json.loads(text)))
        except ValueError:
            pass
        if "data: {" in text:
            return re.sub(
                r"^data: (\{.*\})$",
                lambda frame: f"data: {json.dumps(self.value(json.loads(frame[1])))}",
                text,
                flags=re.MULTILINE,
            )
        if self.draw.random() < 0.5:
            return re.sub(r"\d+(\.\d+)?", lambda number: self.draw.choice([number[0]] * 6 + [*WORDS]), text)
        return text[: self.draw.randrange(len(text) + 1)]

    def answer(self, answer):
        status = self.draw.choice([answer.status] * 20 + [500, 404, 429])
        return replace(answer, body=self.text(answer.body), status=status)

    def result(self, result):
        status = self.draw.choice([result.status] * 9 + [None, 1, 127])
        return replace(result, stdout=self.text(result.stdout), status=status)

    def recording(self, recording):
        return replace(
            recording,
            snapshots={
                moment: {key: self.result(one) for key, one in results.items()}
                for moment, results in recording.snapshots.items()
            },
            probes={key: self.answer(one) for key, one in recording.probes.items()},
            answers={
                check: {key: self.answer(one) for key, one in answers.items()}
                for check, answers in recording.answers.items()
            },
        )


@pytest.mark.parametrize("seed", range(16))
def test_no_damage_ends_in_a_traceback(monkeypatch, seed):
    damaged = Damage(seed).recording(load(RECORDING))
    monkeypatch.setattr(reach, "load", lambda _path: damaged)
    request, world = reach.replayed(RECORDING)
    report = asyncio.run(verify(request, world)).report
    assert report.findings
    assert json.loads(render_json(report))["exit_code"] == report.exit_code
    assert render_junit(report)
    assert render_markdown(report)
    text = render_text(report, width=40, color=False, show_all=True)
    assert max(map(len, text.splitlines())) <= 40
