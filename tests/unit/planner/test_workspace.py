"""What is neither weights nor cache: where the bounds differ by version and card."""

import pytest

from bringup.planner.workspace import Platform, late_memory
from bringup.units import GIB


@pytest.mark.parametrize(
    ("version", "low", "high"),
    [
        ((0, 11, 2), 0.5, 3.1),  # seen: 0.66 to 3.66 over seven starts, six of them up to 3.1
        ((0, 13, 0), 0.5, 0.9),  # seen: 0.53 to 0.85 over seven
    ],
)
def test_kernels_on_amd_are_bounded_by_what_starts_of_the_version_had(version, low, high):
    found = late_memory(1, Platform(is_amd=True), version)
    assert (found.low, found.high) == (round(low * GIB), round(high * GIB))
    assert found.low < found.bytes < found.high


def test_kernels_elsewhere_do_not_ask_for_the_version():
    assert late_memory(2, Platform(), (0, 11, 2)) == late_memory(2, Platform(), (0, 33, 0))
