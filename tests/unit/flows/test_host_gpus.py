"""A plan takes the GPUs of one maker of a host, and says so when it could not see another's."""

from pathlib import Path

import pytest

from bringup.errors import HostError
from bringup.flows.host_gpus import recorded_gpus
from bringup.transport.recording import save
from bringup.values.host import CommandResult
from bringup.values.plan import Gpus
from bringup.values.recording import Recording

VENDORS = Path(__file__).parents[2] / "golden/vendors"


def planned_on(folder: Path, **cases: str) -> Gpus:
    """The GPUs of a host with the recorded answers of these makers' cases."""
    answers = {
        file.stem: CommandResult(key=file.stem, status=0, stdout=file.read_text())
        for vendor, case in cases.items()
        for file in (VENDORS / vendor / case).glob("*.txt")
    }
    save(folder / "box.json", Recording(host="box", snapshots={"before": answers}))
    return recorded_gpus(folder / "box.json", ())


def test_the_graphics_of_a_processor_do_not_stand_in_the_way(tmp_path: Path) -> None:
    found = planned_on(tmp_path, nvidia="case-a", amd="processor-graphics")
    assert (found.count, found.card.name) == (8, "NVIDIA RTX PRO 6000 Blackwell Server Edition")


def test_cards_of_amd_alone(tmp_path: Path) -> None:
    found = planned_on(tmp_path, nvidia="no-gpu", amd="rocm-6.4-mi300x")
    assert (found.count, found.card.name) == (1, "AMD Instinct MI300X")


def test_cards_that_could_not_be_read_are_not_replaced_by_others(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="NVIDIA"):
        planned_on(tmp_path, nvidia="driver-not-loaded", amd="processor-graphics")
