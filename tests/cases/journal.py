"""A real journal of systemd, made of messages by systemd's own receiver, and a `journalctl` that reads it."""

import shutil
import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

RECEIVER = Path("/usr/lib/systemd/systemd-journal-remote")
MISSING = "NOT TESTED: no systemd-journal-remote here (Debian: apt-get install systemd-journal-remote)"
BOOTS = ("a" * 32, "b" * 32)
_BEGIN = 1_764_489_600_000_000  # microseconds since 1970


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message as journald keeps it."""

    text: str | bytes
    unit: str = "vllm"
    boot: str = BOOTS[-1]
    pid: int = 31
    is_manager: bool = False  # systemd itself says it of the unit
    is_kernel: bool = False

    def fields(self, time: int) -> Iterable[tuple[str, bytes]]:
        """What identifies it beside the text."""
        yield "__REALTIME_TIMESTAMP", str(time).encode()
        yield "__MONOTONIC_TIMESTAMP", str(time - _BEGIN).encode()
        yield "_BOOT_ID", self.boot.encode()
        yield "_MACHINE_ID", b"c" * 32
        yield "_HOSTNAME", b"gpubox"
        yield "PRIORITY", b"6"
        if self.is_kernel:
            yield "_TRANSPORT", b"kernel"
            yield "SYSLOG_IDENTIFIER", b"kernel"
        elif self.is_manager:
            yield "_PID", b"1"
            yield "SYSLOG_IDENTIFIER", b"systemd"
            yield "UNIT", f"{self.unit}.service".encode()
        else:
            yield "_PID", str(self.pid).encode()
            yield "SYSLOG_IDENTIFIER", self.unit.encode()
            yield "_SYSTEMD_UNIT", f"{self.unit}.service".encode()


def crash_loop(
    log: str, *, unit: str = "vllm", times: int = 3, boots: Iterable[str] = BOOTS
) -> list[Message]:
    """A unit that systemd starts again whenever it ends with this log."""
    found: list[Message] = []
    for boot in boots:
        for attempt in range(1, times + 1):
            told = f"{unit}.service: "
            found.append(Message(text=f"Started {unit}.service - model server.", boot=boot, is_manager=True))
            lines = log.rstrip("\n").split("\n")
            found += [Message(text=line, unit=unit, boot=boot, pid=30 + attempt) for line in lines]
            found += [
                Message(text=told + words, unit=unit, boot=boot, is_manager=True)
                for words in (
                    "Main process exited, code=exited, status=1/FAILURE",
                    "Failed with result 'exit-code'.",
                    f"Scheduled restart job, restart counter is at {attempt}.",
                )
            ]
    return found


def write_journal(folder: Path, messages: Iterable[Message]) -> None:
    """A journal of these messages, a second apart, in the folder."""
    folder.mkdir(parents=True)
    packed = bytearray()
    for place, message in enumerate(messages, start=1):
        for name, value in message.fields(_BEGIN + place * 1_000_000):
            packed += name.encode() + b"=" + value + b"\n"
        text = message.text if isinstance(message.text, bytes) else message.text.encode()
        packed += b"MESSAGE\n" + struct.pack("<Q", len(text)) + text + b"\n\n"
    subprocess.run(
        [str(RECEIVER), "-o", str(folder / "box.journal"), "-"],
        input=bytes(packed),
        capture_output=True,
        check=True,
    )


def journalctl_of(folder: Path, tools: Path) -> None:
    """In `tools`, a `journalctl` that is the real one, on the journal in the folder."""
    tools.mkdir(parents=True, exist_ok=True)
    program = tools / "journalctl"
    program.write_text(f'#!/bin/sh\nexec {shutil.which("journalctl")} --directory={folder} "$@"\n')
    program.chmod(0o755)
