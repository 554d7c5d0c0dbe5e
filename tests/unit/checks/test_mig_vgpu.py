import pytest

from bringup.checks.mig_vgpu import CHECK
from bringup.values.engine import EngineSpec
from bringup.values.host import GpuInstance


def judge(make, *gpus, tp=None):
    spec = EngineSpec(engine="vllm", tensor_parallel_size=tp) if tp else None
    return make.judge(CHECK, make.deployment(host=make.box(*gpus), spec=spec))


def found(make, *gpus, tp=None):
    return make.found(judge(make, *gpus, tp=tp))


def test_whole_cards_are_not_spoken_of(make):
    assert found(make, make.card(0), make.card(1, mig_mode=None)) == {}
    assert found(make) == {}


def test_a_model_in_one_instance_is_fine_and_over_several_is_not(make):
    cut = make.card(0, mig_mode="Enabled", instances=(GpuInstance(profile="1g.18gb"),))
    judgement = judge(make, cut)
    assert make.found(judgement) == {"mig_vgpu.mig": "note"}
    assert judgement.findings[0].summary == "GPU 0 cut by MIG into 1g.18gb"
    assert found(make, cut, tp=1) == {"mig_vgpu.mig": "ok"}
    assert found(make, cut, tp=4) == {"mig_vgpu.mig": "warning"}


def test_a_cut_card_beside_the_model(make):
    assert found(make, make.card(0), make.idle_card(1, mig_mode="Enabled"), tp=4) == {"mig_vgpu.mig": "note"}


def test_a_mode_that_changes_with_the_next_reset(make):
    gpu = make.card(0, mig_mode="Disabled", mig_mode_pending="Enabled")
    assert found(make, gpu) == {"mig_vgpu.pending": "warning"}
    assert found(make, make.card(0, mig_mode_pending="Disabled")) == {}


@pytest.mark.parametrize("name", ["NVIDIA A40-48Q", "NVIDIA A100-40C", "GRID T4-16Q"])
def test_slices_of_a_hypervisor(make, name):
    assert found(make, make.card(0, name=name)) == {"mig_vgpu.vgpu": "note"}


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA A10G"])
def test_names_of_whole_cards(make, name):
    assert found(make, make.card(0, name=name)) == {}
