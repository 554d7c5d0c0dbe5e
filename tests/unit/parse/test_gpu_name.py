from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.errors import UsageError
from bringup.parse.gpu_name import read_catalogue, read_gpus
from bringup.transport.catalogue import load_cards
from bringup.units import MIB

CARDS = load_cards()


@pytest.mark.parametrize(
    ("text", "count", "name", "total", "cuda"),
    [
        ("8x RTX PRO 6000 Blackwell", 8, "NVIDIA RTX PRO 6000 Blackwell", 97887, 97251),
        ("4 x rtx pro 6000 server", 4, "NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, 97251),
        (
            "RTX PRO 6000 Blackwell Max-Q",
            1,
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            97887,
            97251,
        ),
        ("pro6000", 1, "NVIDIA RTX PRO 6000 Blackwell", 97887, 97251),
        ("RTX 4090", 1, "NVIDIA GeForce RTX 4090", 24564, 24218),
        ("RTX 4090 24GB", 1, "NVIDIA GeForce RTX 4090", 24564, 24218),
        ("RTX 4090 D", 1, "NVIDIA GeForce RTX 4090 D (48 GB modified)", 49140, None),
        ("4090", 1, "NVIDIA GeForce RTX 4090", 24564, 24218),
        ("2 RTX5090", 2, "NVIDIA GeForce RTX 5090", 32607, 32154),
        ("RTX 3090", 1, "NVIDIA GeForce RTX 3090", 24576, 24260),
        ("RTX 3090 Ti", 1, "NVIDIA GeForce RTX 3090 Ti", 24564, None),
        ("4xH100 80GB", 4, "NVIDIA H100", 81559, 81080),
        ("H100 SXM x 8", 8, "NVIDIA H100 80GB HBM3", 81559, 81080),
        ("H100 NVL", 1, "NVIDIA H100 NVL", 95830, None),
        ("A100 40GB", 1, "A100 40GB", 40960, 40335),
        ("a100-80g", 1, "a100-80g", 81920, None),
        ("h200 141gb", 1, "NVIDIA H200", 143771, 143157),
        ("H20", 1, "NVIDIA H20", 97871, None),
        ("GH200 96GB", 1, "NVIDIA GH200 480GB", 97871, None),
        ("DGX Spark", 1, "NVIDIA GB10", 124610, 124610),
        ("NVIDIA RTX 6000 Ada Generation", 1, "NVIDIA RTX 6000 Ada Generation", 49140, None),
        ("8 MI300X", 8, "AMD Instinct MI300X", 196592, 196592),
        ("T4", 1, "Tesla T4", 15360, 14972),
    ],
)
def test_a_name_as_people_write_it_is_one_card(text, count, name, total, cuda):
    gpus = read_gpus(text, CARDS)
    assert (gpus.count, gpus.card.name, gpus.card.memory_total) == (count, name, total * MIB)
    if cuda is not None:
        assert gpus.card.cuda_total == cuda * MIB


@pytest.mark.parametrize(
    ("text", "candidates"),
    [
        ("A100", ["A100-SXM4-40GB", "A100-SXM4-80GB"]),
        ("2x h100", ["H100 PCIe", "H100 NVL"]),
        ("RTX 6000", ["RTX 6000 Ada", "RTX PRO 6000"]),
    ],
)
def test_a_name_of_cards_that_differ_lists_them(text, candidates):
    with pytest.raises(UsageError) as caught:
        read_gpus(text, CARDS)
    assert all(name in caught.value.message for name in candidates)


def test_editions_of_one_card_that_differ_only_in_power_need_no_question():
    card = read_gpus("RTX PRO 6000 Blackwell", CARDS).card
    assert card.power_limit is None
    assert read_gpus("RTX PRO 6000 Blackwell Max-Q", CARDS).card.power_limit == 300


@pytest.mark.parametrize("text", ["unknown", "Ascend 910", "GeForce 256", "", "0x H100", "x4"])
def test_what_is_no_card_is_refused_with_a_hint(text):
    with pytest.raises(UsageError) as caught:
        read_gpus(text, CARDS)
    assert caught.value.hint


def test_given_memory_makes_any_name_a_card():
    gpus = read_gpus("2x unknown", CARDS, memory_mib=1048576)
    assert (gpus.count, gpus.card.name, gpus.card.memory_total) == (2, "unknown", 1048576 * MIB)
    assert 0 < gpus.card.reserved <= 640 * MIB
    assert gpus.card.compute_capability is None


def test_cuda_memory_is_what_cuda_sees_and_the_reserve_comes_on_top():
    card = read_gpus("RTX PRO 6000 Blackwell", CARDS, cuda_mib=97000).card
    assert (card.cuda_total, card.memory_total) == (97000 * MIB, 97636 * MIB)
    assert card.is_cuda_total_measured
    both = read_gpus("unknown", CARDS, memory_mib=97887, cuda_mib=97251).card
    assert both.reserved == 636 * MIB


def test_impossible_memory_is_refused():
    for sizes in ({"memory_mib": 0}, {"cuda_mib": -1}, {"used_mib": -5}, {"memory_mib": 10, "cuda_mib": 20}):
        with pytest.raises(UsageError):
            read_gpus("RTX 4090", CARDS, **sizes)
    with pytest.raises(UsageError, match="used by others"):
        read_gpus("RTX 4090", CARDS, used_mib=24300)


def test_what_others_hold_is_kept():
    assert read_gpus("RTX 4090", CARDS, used_mib=1500).used_by_others == 1500 * MIB


def test_every_row_of_the_catalogue_is_found_by_its_own_name_and_says_where_it_is_from():
    for row in CARDS:
        found = read_gpus(f"3x {row.card.name}", CARDS)
        assert found.count == 3
        assert found.card.memory_total == row.card.memory_total
        assert row.card.source
        assert row.card.memory_total > 0
        assert 0 <= row.card.reserved < row.card.memory_total / 20
        assert row.card.cuda_total + row.card.reserved == row.card.memory_total
    assert len({row.card.name for row in CARDS}) == len(CARDS)


@given(st.text(max_size=40))
def test_any_text_is_a_card_or_a_clear_refusal(text):
    with suppress(UsageError):
        assert read_gpus(text, CARDS).card.memory_total > 0


def test_a_row_without_a_seen_size_is_estimated_and_says_so():
    (row,) = read_catalogue({"gpus": [{"name": "New 9000", "memory_gb": 64}]})
    assert not row.card.is_cuda_total_measured
    assert 0.97 < row.card.cuda_total / (64 * 1024 * MIB) < 1
