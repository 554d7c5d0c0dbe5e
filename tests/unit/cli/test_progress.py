import io
import sys

from bringup.cli.progress import ProgressLine
from bringup.flows.exercise import Step


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_line_never_wraps_and_is_gone_at_the_end(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    with ProgressLine() as progress:
        progress.step(
            Step(check="cancel", title="frees the place of a client that hangs up", done=3, total=20)
        )
    first, *_ = terminal.getvalue().removeprefix("\r\x1b[2K").split("\r")
    assert first == "[3/20] frees the place of a client that"
    assert terminal.getvalue().endswith("\r\x1b[2K")


def test_what_is_said_stays_and_quiet_is_quiet(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with ProgressLine(enabled=False) as progress:
        progress.step(Step(check="fact", title="answers a fact", done=0, total=1))
        progress.say("starting")
    assert terminal.getvalue() == ""
    with ProgressLine() as progress:
        progress.say("starting")
    assert "starting\n" in terminal.getvalue()
