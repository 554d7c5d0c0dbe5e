"""Files of flags as people write them."""

import json

import pytest

from bringup.errors import UsageError
from bringup.parse.flag_file import read_flag_file


def test_the_forms_that_such_files_use() -> None:
    text = """
# how we serve it
model: org/model   # the large one
host: "127.0.0.1"
tensor_parallel_size: 4
enforce-eager: true
enable-prefix-caching: false
served-model-name: [a, 'b']
lora-modules:
  - x=1
  - y=2
speculative-config:
  method: mtp
  num_speculative_tokens: 3
"""
    settings = read_flag_file(text, source="f")
    assert settings["model"] == "org/model"
    assert settings["host"] == "127.0.0.1"
    assert settings["tensor-parallel-size"] == "4"
    assert settings["enforce-eager"] == ""
    assert settings["no-enable-prefix-caching"] == ""
    assert settings["served-model-name"] == "a b"
    assert settings["lora-modules"] == "x=1 y=2"
    assert json.loads(settings["speculative-config"]) == {"method": "mtp", "num_speculative_tokens": 3}


def test_what_is_no_such_file_says_where() -> None:
    with pytest.raises(UsageError, match="f line 2 is no `name: value`: \\{what"):
        read_flag_file("model: m\n{what is this", source="f")
