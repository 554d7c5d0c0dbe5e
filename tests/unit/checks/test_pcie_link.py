from dataclasses import replace

from bringup.checks.pcie_link import CHECK
from bringup.values.host import GpuSample, HostFacts, PciDevice


def judge(make, *gpus, **more):
    return make.judge(CHECK, make.deployment(host=make.box(*gpus, **more)))


def found(make, *gpus, **more):
    return make.found(judge(make, *gpus, **more))


def working(*generations):
    return tuple(GpuSample(utilization=1.0, pcie_generation=one) for one in generations)


def test_full_links_at_rest(make):
    judgement = judge(make, *(make.card(index) for index in range(8)))
    assert make.found(judgement) == {"pcie_link": "ok"}
    assert judgement.findings[0].summary == "x16 on GPUs 0-7; generation 1 at rest, as is normal"


def test_lanes_are_judged_always(make):
    judgement = judge(make, make.card(0), make.card(1), make.card(2, pcie_width=4))
    assert make.found(judgement) == {"pcie_link.width": "warning"}
    assert judgement.findings[0].summary == "GPU 2 linked by 4 of 16 lanes"


def test_one_card_alone_loses_little(make):
    assert found(make, make.card(pcie_width=8)) == {"pcie_link.width": "note"}
    assert found(make, make.card(pcie_width=4)) == {"pcie_link.width": "warning"}


def test_a_card_that_does_not_matter(make):
    gpus = (make.card(0), make.card(1), make.idle_card(2, pcie_width=4))
    assert found(make, *gpus) == {"pcie_link.width": "note"}


def test_the_generation_is_judged_at_work(make):
    slow = make.card(0, samples=working(1, 1, 1))
    judgement = judge(make, slow, make.card(1))
    assert make.found(judgement) == {"pcie_link.generation": "warning"}
    assert judgement.findings[0].summary == "GPU 0 at generation 1 of 5 while working"


def test_a_link_that_wakes_up_is_good(make):
    judgement = judge(make, make.card(0, samples=working(1, 5, 5)))
    assert make.found(judgement) == {"pcie_link": "ok"}
    assert judgement.findings[0].summary.endswith("generation 5 at work")


def test_one_sample_at_work_is_not_enough(make):
    assert found(make, make.card(0, samples=working(1))) == {"pcie_link": "ok"}


def test_the_other_slot_is_seen_in_the_peers(make):
    judgement = judge(make, make.card(0), make.card(1, pcie_width=8, pcie_width_max=8))
    assert make.found(judgement) == {"pcie_link.slot": "note"}
    assert judgement.findings[0].summary == "GPU 1: a slot of 8 lanes, the card has 16"
    assert found(make, make.card(0), make.card(1, pcie_width=4, pcie_width_max=4)) == {
        "pcie_link.slot": "warning"
    }


def device(slot):
    return PciDevice(address="0000:06:00.0", link_width_max=16, slot_width_max=slot)


def test_the_port_above_the_card(make):
    gpu = make.card(0, pcie_width=8, pcie_width_max=8)
    assert found(make, gpu, pci_devices=(device(8),)) == {"pcie_link.slot": "note"}
    assert found(make, make.card(0), pci_devices=(device(16),)) == {"pcie_link": "ok"}


def test_the_ports_of_a_virtual_machine_are_made_up(make):
    facts = HostFacts(virtualization="kvm")
    assert found(make, make.card(0), pci_devices=(device(1),), facts=facts) == {"pcie_link": "ok"}


def test_an_old_slot(make):
    gpu = make.card(0, pcie_generation_card=5, pcie_generation_host=4, pcie_generation_max=4)
    judgement = judge(make, gpu)
    assert make.found(judgement) == {"pcie_link.host": "note"}
    assert judgement.findings[0].summary == "the slots of GPU 0 do generation 4, the card 5"
    assert found(make, replace(gpu, pcie_generation_host=5)) == {"pcie_link": "ok"}


def test_integrated_cards_and_unknown_links_are_not_spoken_of(make):
    assert found(make, make.card(compute_capability="12.1", pcie_width=1)) == {}
    assert found(make, make.card(pcie_width=None)) == {}
    assert found(make) == {}
