"""What logs of real failures taught: figures and places that a message itself does not settle."""

from bringup.flows.diagnose import diagnose, load_rules, sift
from bringup.values.finding import Finding

ARGUMENTS = (
    "INFO 05-28 10:00:01 [api_utils.py:286] non-default args: {'model_tag': '/srv/m', 'model': '/srv/m', "
    "'tensor_parallel_size': %d}"
)
MISMATCH = """Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/vllm/model_executor/models/utils.py", line 476, in load_weights
    autoloaded_weights = set(self._load_module("", self.module, weights))
RuntimeError: The size of tensor a (4096) must match the size of tensor b (2048) at non-singleton dimension 1
"""


def first(text: str) -> Finding:
    rules = load_rules()
    return diagnose(sift([text.encode()], rules), rules, source="test").findings[0]


def test_a_weight_of_another_shape_is_a_wrong_cut_only_where_something_is_cut():
    assert first(f"{ARGUMENTS % 1}\n{MISMATCH}").id == "file.param_mismatch"
    assert first(f"{ARGUMENTS % 2}\n{MISMATCH}").id == "shard.model_bug"
    assert first(MISMATCH).id == "shard.model_bug"  # the log does not say


def test_memory_errors_elsewhere_are_no_pointer():
    elsewhere = (
        "Traceback (most recent call last):\n"
        '  File "/opt/lib/site-packages/vllm/v1/core/sched/scheduler.py", line 4, in schedule\n'
        "    x = y(z)\n"
        "MemoryError\n"
    )
    assert first(elsewhere).id != "file.lfs_pointer"


def test_a_linker_without_room_names_the_disk_it_wrote_to():
    text = (
        "g++ /data/cache/x.main.cpp -shared -o /data/cache/x.main.so\n"
        "/usr/bin/ld: final link failed: No space left on device\n"
    )
    found = first(text)
    assert found.id == "host.disk_full"
    assert "/data/cache/x.main.so" in found.summary
    assert "/usr/bin/ld" not in found.summary


def test_an_unknown_parser_is_named():
    found = first("KeyError: 'invalid tool call parser: nonsense (chose from { hermes,llama3_json })'\n")
    assert found.id == "api.tool_parser"
    assert "nonsense" in found.summary


def test_a_quantisation_that_the_files_do_not_have_is_taken_away():
    found = first(
        "Value error, Cannot find the config file for awq [type=value_error, input_type=ArgsKwargs]\n"
    )
    assert "awq was asked for" in found.summary
    assert [(fix.name, fix.old, fix.new) for fix in found.fixes] == [("--quantization", "awq", None)]


def test_a_context_beyond_the_model_is_lowered_by_the_engines_own_flag():
    text = "%s (99999) is greater than the derived %s (%s). "
    sglang = first(
        "ValueError: Warning: User-specified " + text % ("context_length", "context_length", "4096")
    )
    assert [(fix.name, fix.new) for fix in sglang.fixes[:1]] == [("--context-length", "4096")]
    vllm = first("Value error, User-specified " + text % ("max_model_len", "max_model_len", "max_len=4096.0"))
    assert [(fix.name, fix.new) for fix in vllm.fixes[:1]] == [("--max-model-len", "4096")]


def test_a_longer_context_that_was_allowed_is_no_failure():
    said = "WARNING User-specified context_length (9) is greater than the derived context_length (4). \n"
    assert first(said).severity in ("ok", "note")
