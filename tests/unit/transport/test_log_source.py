import gzip
import shutil
import subprocess

import pytest

from bringup.errors import HostError, UsageError
from bringup.transport.log_source import read_command, read_file, unpacked

TEXT = "CUDA out of memory\n" * 1000


def test_plain_packed_and_wide_files_are_the_same_text(tmp_path):
    plain, packed, twice, wide = (tmp_path / name for name in ("a", "b.gz", "c.gz", "d"))
    plain.write_bytes(TEXT.encode())
    packed.write_bytes(gzip.compress(TEXT.encode()))
    twice.write_bytes(gzip.compress(TEXT[:500].encode()) + gzip.compress(TEXT[500:].encode()))
    wide.write_text(TEXT, encoding="utf-16")
    for path in (plain, packed, twice):
        assert b"".join(read_file(path)) == TEXT.encode()
    assert b"".join(read_file(wide)).decode().lstrip("\ufeff") == TEXT


@pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")
def test_zstd_is_unpacked_by_its_program(tmp_path):
    path = tmp_path / "a.zst"
    path.write_bytes(
        subprocess.run(["zstd", "-c"], input=TEXT.encode(), capture_output=True, check=True).stdout
    )
    assert b"".join(read_file(path)) == TEXT.encode()


def test_a_cut_gzip_gives_what_there_is_and_a_broken_one_is_said(tmp_path):
    data = gzip.compress(bytes(range(256)) * 4000, compresslevel=0)
    assert b"".join(unpacked([data[:5000]], name="x"))
    with pytest.raises(UsageError, match="cannot unpack x"):
        list(unpacked([b"\x1f\x8bgarbage"], name="x"))


def test_a_folder_and_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        list(read_file(tmp_path))
    with pytest.raises(UsageError, match="cannot read"):
        list(read_file(tmp_path / "none"))


def test_a_command_s_output_and_its_failure():
    assert b"".join(read_command(("sh", "-c", "echo out; echo noise >&2"), what="ask")) == b"out\n"
    with pytest.raises(HostError, match="cannot ask: no such unit"):
        list(read_command(("sh", "-c", "echo no such unit >&2; exit 66"), what="ask"))
    with pytest.raises(HostError, match="not installed"):
        list(read_command(("no-such-program-here",), what="ask"))
    with pytest.raises(HostError, match="cannot ask: exit status 3"):
        list(read_command(("sh", "-c", "exit 3"), what="ask"))
