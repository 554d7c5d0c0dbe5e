from bringup.checks.nvlink_fabric import CHECK
from bringup.values.host import GpuLink, NvLink


def judge(make, *gpus, **more):
    return make.judge(CHECK, make.deployment(host=make.box(*gpus, **more)))


def found(make, *gpus, **more):
    return make.found(judge(make, *gpus, **more))


def links(active, down=0):
    return tuple(
        NvLink(number=number, rate=26.562e9 if number < active else None) for number in range(active + down)
    )


def switched(make, index, **more):
    usual = {
        "fabric_state": "Completed",
        "fabric_status": "Success",
        "nvlinks": links(18),
        "name": "NVIDIA H200",
    }
    return make.card(index, **{**usual, **more})


def matrix(count, kind="NV18", alone=()):
    return tuple(
        GpuLink(source=f"GPU{one}", target=f"GPU{other}", kind="SYS" if {one, other} & set(alone) else kind)
        for one in range(count)
        for other in range(count)
        if one != other
    )


def test_all_up(make):
    judgement = judge(make, *(switched(make, index) for index in range(8)), links=matrix(8))
    assert make.found(judgement) == {"nvlink_fabric": "ok"}
    assert judgement.findings[0].summary == "18 NVLinks active on GPUs 0-7; fabric Completed"


def test_a_host_without_nvlink_is_not_spoken_of(make):
    gpus = [make.card(index, said={"fabric_state": "N/A"}) for index in range(4)]
    assert found(make, *gpus, links=matrix(4, kind="NODE")) == {}
    assert found(make, make.card(0, nvlinks=links(0, down=4))) == {}
    assert found(make) == {}


def test_a_card_that_did_not_join(make):
    late = switched(make, 1, fabric_state="In Progress", fabric_status=None)
    judgement = judge(make, switched(make, 0), late)
    assert make.found(judgement) == {"nvlink_fabric.state": "failure"}
    assert judgement.findings[0].summary.startswith("GPU 1 did not join the NVLink fabric: In Progress")
    bad = switched(make, 1, fabric_status="Unknown Error")
    assert found(make, switched(make, 0), bad) == {"nvlink_fabric.state": "failure"}


def test_links_that_are_down(make):
    judgement = judge(make, switched(make, 0), switched(make, 1, nvlinks=links(16, down=2)))
    assert make.found(judgement) == {"nvlink_fabric.inactive": "warning"}
    assert "16 of 18 NVLinks active (down: 16, 17)" in judgement.findings[0].summary


def test_a_card_with_fewer_links_than_its_peers(make):
    assert found(make, switched(make, 0), switched(make, 1, nvlinks=links(12))) == {
        "nvlink_fabric.fewer": "failure"
    }


def test_one_card_among_many_that_reaches_nobody(make):
    gpus = [make.card(index, name="NVIDIA B200") for index in range(8)]
    judgement = judge(make, *gpus, links=matrix(8, alone=(4,)))
    assert make.found(judgement) == {"nvlink_fabric.alone": "failure"}
    assert judgement.findings[0].summary == "GPU 4: no NVLink to any other card, 7 others have one"


def test_bridged_pairs_are_whole(make):
    pairs = ({0, 1}, {2, 3})
    rows = tuple(
        GpuLink(source=f"GPU{one}", target=f"GPU{other}", kind="NV4" if {one, other} in pairs else "PHB")
        for one in range(4)
        for other in range(4)
        if one != other
    )
    judgement = judge(make, *(make.card(index) for index in range(4)), links=rows)
    assert make.found(judgement) == {"nvlink_fabric": "ok"}
    assert judgement.findings[0].summary == "cards joined by NV4"


def test_a_card_of_another_kind_needs_no_link(make):
    gpus = [switched(make, 0), switched(make, 1), make.card(2, name="NVIDIA L4")]
    assert found(make, *gpus, links=matrix(3, alone=(2,))) == {"nvlink_fabric": "ok"}


def test_cut_cards_have_no_links_to_show(make):
    assert found(make, make.card(0, mig_mode="Enabled", fabric_state="Completed")) == {}
