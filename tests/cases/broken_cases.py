"""The touchstone cases with one fault each, and how all of them are verified."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from machine import Box, Worker
from touchstones import BLOCKS, box_a, case_a, case_b, under_load

from bringup.flows.reach import replayed
from bringup.flows.verify import verify
from bringup.transport.recording import save
from bringup.values.recording import Recording
from bringup.values.report import Report


def verified(recording: Recording, folder: Path, **wanted: object) -> Report:
    """The report of a recording, through its file as `--from` reads it."""
    recording = replace(recording, options={**recording.options, **wanted})
    save(folder / "case.json.gz", recording)
    request, world = replayed(folder / "case.json.gz")
    return asyncio.run(verify(request, world)).report


def card(box: Box, index: int, **changes: object) -> Box:
    """The box with one card changed."""
    return replace(
        box, cards=tuple(replace(one, **changes) if one.index == index else one for one in box.cards)
    )


Change = Callable[[Box], Box]


def foreign(box: Box) -> Box:
    """3 GiB of somebody else's on a card of case B, who is named. (In case A there is no room for it.)"""
    box = card(box, 2, used_mib=78_369 + 3_072)
    other = Worker(pid=999, card=2, mib=3_072, name="python3", is_engine=False)
    return replace(box, workers=(*box.workers, other))


def unseen(box: Box) -> Box:
    """3 GiB more than the others on one card of case B, and nobody is named for it."""
    return card(box, 2, used_mib=78_369 + 3_072)


def cold(box: Box) -> Box:
    """A card that should carry the model is in P8 at 32 W."""
    box = card(box, 3, used_mib=3, watts=32.0, state="P8", generation=1)
    return replace(box, workers=box.workers[:3])


def stale(box: Box) -> Box:
    """A process of an earlier run holds 20 GiB of a card that is meant to be idle."""
    box = card(box, 5, used_mib=20_483, watts=40.0)
    return replace(
        box, workers=(*box.workers, Worker(pid=3_333, card=5, mib=20_480, name="python3", is_engine=False))
    )


def elsewhere(box: Box) -> Box:
    """The engine sees cards 4 to 7 and runs there."""
    cards = tuple(
        replace(one, used_mib=3, watts=33.0, state="P8")
        if one.index < 4
        else replace(one, used_mib=96_721, watts=83.0, state="P1")
        for one in box.cards
    )
    workers = tuple(replace(one, card=one.card + 4) for one in box.workers)
    return replace(box, cards=cards, workers=workers, environment={"CUDA_VISIBLE_DEVICES": "4,5,6,7"})


def narrow(box: Box) -> Box:
    """The link of a card of the model came up with four lanes."""
    return card(box, 2, width=4)


def spinning(box: Box) -> Box:
    """A collective in which all wait: busy for the driver, and next to no power."""
    for index in range(4):
        box = card(box, index, watts=140.0 + index / 10, busy=100)
    return box


def empty(box: Box) -> Box:
    """Half of the pool is not there."""
    cards = tuple(replace(one, used_mib=one.used_mib - 17_360) if one.index < 4 else one for one in box.cards)
    return replace(box, cards=cards, workers=tuple(replace(one, mib=one.mib - 17_360) for one in box.workers))


def unreserved(box: Box) -> Box:
    """The driver does not say what it keeps."""
    return replace(box, cards=tuple(replace(one, reserved_mib=None) for one in box.cards))


_FOUR = {"gpus": ["0", "1", "2", "3"]}
_HOT = {"clocks_throttle_reasons.active": "0x0000000000000020", "temperature.gpu": 93}
CASES: Mapping[str, tuple[Callable[[], Recording], Mapping[str, object]]] = {  # with what is wanted
    "a": (case_a, {}),
    "a share": (lambda: case_a(share="0.90"), {}),
    "a cold": (lambda: case_a(cold), {}),
    "a cold named": (lambda: case_a(cold), _FOUR),
    "a narrow": (lambda: case_a(narrow), {}),
    "a spinning": (lambda: case_a(spinning), {}),
    "a stale": (lambda: case_a(stale), {}),
    "a elsewhere": (lambda: case_a(elsewhere), _FOUR),
    "a unreserved": (lambda: case_a(unreserved), {}),
    "a empty": (lambda: case_a(empty, blocks=BLOCKS // 2), {}),
    "a needs more": (case_a, {"need_context": 262_144, "need_concurrency": 6}),
    "a hot": (lambda: under_load(case_a(), box_a(), _HOT), {}),
    "a slow": (lambda: under_load(case_a(), box_a(), {"pcie.link.gen.current": 1}), {}),
    "a tight": (lambda: under_load(case_a(), box_a(), {"memory.used": 97_200}), {}),
    "b": (case_b, {}),
    "b foreign": (lambda: case_b(foreign), {}),
    "b unseen": (lambda: case_b(unseen), {}),
}
