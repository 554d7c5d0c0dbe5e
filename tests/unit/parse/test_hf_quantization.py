import pytest

from bringup.parse.hf_quantization import read_quantization


def read(own, beside=None):
    return read_quantization({"quantization_config": own}, beside)


def test_no_word_of_a_format_is_none():
    assert read_quantization({}) is None
    assert read_quantization({"quantization_config": None}) is None
    assert read({}) is None


def test_fp8_in_blocks_or_by_tensor():
    block = read({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"})
    assert (block.scheme, block.block, block.is_dynamic) == ("fp8_block", (128, 128), True)
    tensor = read({"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]})
    assert (tensor.scheme, tensor.block, tensor.is_dynamic) == ("fp8_tensor", None, False)
    assert tensor.ignored == ("lm_head",)


@pytest.mark.parametrize(
    ("weights", "scheme", "group"),
    [
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, "fp8_channel", None),
        ({"num_bits": 8, "type": "float", "strategy": "tensor"}, "fp8_tensor", None),
        (
            {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]},
            "fp8_block",
            None,
        ),
        ({"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32}, "mxfp8", 32),
        ({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, "nvfp4", 16),
        ({"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}, "mxfp4", 32),
        ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}, "int4_group", 128),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, "int8", None),
        ({"num_bits": 8, "type": "int", "strategy": "group", "group_size": 64}, "int8_group", 64),
    ],
)
def test_compressed_tensors_schemes(weights, scheme, group):
    found = read(
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
            "ignore": ["lm_head", "re:.*gate$"],
        }
    )
    assert (found.scheme, found.group_size) == (scheme, group)
    assert found.ignored == ("lm_head", "re:.*gate$")
    assert found.targets == ()


def test_compressed_tensors_order_symmetry_and_activations():
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": False}
    group = {"targets": ["Linear"], "weights": {**weights, "actorder": "group"}, "input_activations": None}
    found = read({"quant_method": "compressed-tensors", "config_groups": {"g": group}})
    assert (found.is_symmetric, found.has_act_order, found.is_dynamic) == (False, True, True)
    local = {**group, "input_activations": {"num_bits": 4, "type": "float", "dynamic": "local"}}
    assert not read({"quant_method": "compressed-tensors", "config_groups": {"g": local}}).is_dynamic


def test_several_formats_in_one_model_keep_their_targets():
    groups = {
        "group_0": {
            "targets": ["model.layers.0.self_attn.q_proj"],
            "weights": {"num_bits": 8, "type": "float"},
        },
        "group_1": {"targets": ["lm_head"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}},
    }
    found = read({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "config_groups": groups})
    assert (found.scheme, found.targets) == ("nvfp4", ("lm_head",))
    (other,) = found.others
    assert (other.scheme, other.targets) == ("fp8_tensor", ("model.layers.0.self_attn.q_proj",))


def test_a_group_for_all_linear_layers_comes_first():
    groups = {
        "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}},
        "group_1": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float"}},
    }
    found = read({"quant_method": "compressed-tensors", "config_groups": groups})
    assert (found.scheme, found.targets, len(found.others)) == ("nvfp4", (), 1)


@pytest.mark.parametrize(
    ("algorithm", "scheme", "group"),
    [
        ("FP8", "fp8_tensor", None),
        ("NVFP4", "nvfp4", 16),
        ("W4A16_AWQ", "int4_group", 128),
        ("MXFP8", "mxfp8", 32),
        ("FP8_PB_WO", "fp8_block", None),
        ("W8A8_SQ_PER_CHANNEL", "int8", None),
    ],
)
def test_modelopt_algorithms(algorithm, scheme, group):
    found = read({"quant_method": "modelopt", "quant_algo": algorithm})
    assert (found.scheme, found.group_size, found.method) == (scheme, group, "modelopt")


@pytest.mark.parametrize(
    ("said", "kv"),
    [
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}}, "fp8"),
        ({"kv_cache_scheme": {"num_bits": 4, "type": "float"}}, "nvfp4"),
        ({"kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"kv_cache_scheme": "FP8"}, "fp8"),
        ({"kv_cache_quant_algo": None}, None),
        ({"kv_cache_quant_algo": "SOMETHING_NEW"}, None),
        ({}, None),
    ],
)
def test_what_the_automatic_cache_format_becomes(said, kv):
    assert read({"quant_method": "modelopt", "quant_algo": "NVFP4", **said}).kv_cache == kv


def test_the_file_beside_the_config_counts_where_the_config_is_silent():
    beside = {
        "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    }
    alone = read_quantization({}, beside)
    assert (alone.scheme, alone.kv_cache, alone.ignored) == ("nvfp4", "fp8", ("lm_head",))
    both = read({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["head"]}, beside)
    assert (both.scheme, both.kv_cache, both.ignored) == ("fp8_tensor", "fp8", ("head",))


def test_int4_of_gptq_and_awq():
    gptq = read({"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": True, "sym": True})
    assert (gptq.scheme, gptq.group_size, gptq.is_symmetric, gptq.has_act_order) == (
        "int4_group",
        64,
        True,
        True,
    )
    awq = read({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True})
    assert (awq.is_symmetric, awq.has_act_order) == (False, False)
    assert read({"quant_method": "gptq", "bits": 8, "group_size": -1}).group_size is None


def test_others():
    assert read({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}).scheme == "mxfp4"
    assert read({"quant_method": "bitsandbytes", "load_in_4bit": True}).scheme == "bnb4"
    assert read({"quant_method": "bitsandbytes", "load_in_8bit": True}).scheme == "int8"
    assert read({"quant_method": "fbgemm_fp8"}).scheme == "fp8_channel"
    assert read({"quant_method": "brand_new"}).scheme == "unknown"


def test_a_list_that_was_cut_is_known_for_one():
    cut = ["lm_head", "model.layers.0.self_attn*", "... 125 entries in all"]
    found = read({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": cut})
    assert found.ignored == ("lm_head", "model.layers.0.self_attn*")
    assert found.is_list_cut
    assert not read({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}).is_list_cut
