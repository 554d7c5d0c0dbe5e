from bringup.parse.model_shape import completed, shape_in_lines
from bringup.values.model_shape import ModelShape


def test_sizes_are_read_from_a_config_as_logs_print_it():
    shape = shape_in_lines(
        [
            '  "num_attention_heads": 48,',
            "config=Config(vocab_size=200064, num_key_value_heads=8, rope_theta=5000000.0)",
            '  "quantization_config": {"weight_block_size": [128, 128]},',
        ]
    )
    assert (shape.heads, shape.vocabulary, shape.kv_heads, shape.block) == (48, 200_064, 8, (128, 128))
    assert shape.source == "the log"


def test_llama_cpp_s_own_lines_are_read():
    shape = shape_in_lines(
        [
            "print_info: n_head           = 40",
            "print_info: n_head_kv        = 8",
            "print_info: n_vocab = 151936",
        ]
    )
    assert (shape.heads, shape.kv_heads, shape.vocabulary) == (40, 8, 151_936)


def test_two_values_of_one_size_tell_none():
    shape = shape_in_lines(['"num_attention_heads": 16,', '"num_attention_heads": 28,', '"vocab_size": 1000'])
    assert (shape.heads, shape.vocabulary) == (None, 1000)


def test_lines_without_sizes_give_nothing():
    assert not shape_in_lines(["Loading weights", "hidden_size_per_head=1.5"]).is_known


def test_what_one_place_does_not_say_comes_from_the_other():
    log = ModelShape(vocabulary=5, source="the log")
    catalogue = ModelShape(vocabulary=7, heads=3, source="catalogue")
    assert completed(log, catalogue) == ModelShape(vocabulary=5, heads=3, source="the log, catalogue")
    assert completed(ModelShape(), catalogue) == catalogue
