"""Bring an open-weight model up on GPU machines and prove that it is up.

The public names are loaded when they are first used:

    report = bringup.verify("http://gpubox:8000", host="gpubox")
    print(report.verdict, [finding.summary for finding in report.findings])
"""

import importlib

__version__ = "26.12.0.dev0"

# Where each public name lives: importing them all would cost more than `bringup --help` may take.
_HOMES = {
    "verify": "bringup.flows.library",
    "replay": "bringup.flows.library",
    "Report": "bringup.values.report",
    "Table": "bringup.values.report",
    "Finding": "bringup.values.finding",
    "Fingerprint": "bringup.values.finding",
    "Measurement": "bringup.values.finding",
    "Severity": "bringup.values.finding",
    "Depth": "bringup.values.deployment",
    "Wanted": "bringup.values.deployment",
    "BringupError": "bringup.errors",
    "EngineError": "bringup.errors",
    "HostError": "bringup.errors",
    "UnreadableAnswer": "bringup.errors",
    "UsageError": "bringup.errors",
}


def __getattr__(name: str) -> object:
    """The public name, from its home."""
    if name not in _HOMES:
        raise AttributeError(f"module `bringup` has no attribute `{name}`")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(("__version__", *_HOMES))
