"""Files that the user asked for: devices, pipes and links survive; what cannot be written is said first."""

import os
import stat

import pytest

from bringup.errors import UsageError
from bringup.transport.files import require_writable, write_file


def test_a_file_comes_whole_with_the_folders_above_it(tmp_path):
    path = tmp_path / "new" / "report.xml"
    write_file(path, b"one")
    write_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert [one.name for one in path.parent.iterdir()] == ["report.xml"]


def test_what_is_private_is_readable_by_its_owner_only(tmp_path):
    write_file(tmp_path / "recording", b"x", is_private=True)
    assert stat.S_IMODE((tmp_path / "recording").stat().st_mode) == 0o600


def test_a_link_stays_a_link_and_its_target_is_written(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_file(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        require_writable(pipe)
        write_file(pipe, b"through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", ["", "missing/../file/below", "-"])
def test_what_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    path = tmp_path / name if name != "-" else type(tmp_path)(name)
    with pytest.raises(UsageError) as refused:
        require_writable(path)
    assert refused.value.hint


def test_asking_leaves_nothing_behind(tmp_path):
    require_writable(tmp_path / "new" / "report.xml")
    assert list(tmp_path.iterdir()) == []
