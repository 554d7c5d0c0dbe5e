"""Whether the busybox here runs its own programs whatever PATH says: no stand-in is reached then."""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

PREFERS_OWN = (
    "this busybox runs its own programs before those that PATH names (Debian: apt-get install busybox)"
)


@functools.cache
def prefers_its_own() -> bool:
    program = shutil.which("busybox")
    if program is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        stand_in = Path(folder, "dmesg")
        stand_in.write_text("#!/bin/sh\necho stand-in\n")
        stand_in.chmod(0o755)
        done = subprocess.run(
            [program, "sh", "-c", "dmesg"], env={"PATH": folder}, capture_output=True, text=True, check=False
        )
    return done.stdout != "stand-in\n"
