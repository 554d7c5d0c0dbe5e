import asyncio
import gzip
import importlib.util
import json
import stat
from pathlib import Path

import pytest

from bringup.errors import UsageError
from bringup.parse.redact import REDACTED
from bringup.transport import recording as recordings
from bringup.transport.local import LocalRunner
from bringup.transport.replay import ReplayEndpoint, ReplayRunner
from bringup.values.exchange import Answer, Ask, Problem, ProgramResult
from bringup.values.host import CommandResult, Question
from bringup.values.recording import Recording

KEY = "users-own-key-0815"
TOKEN = "hf" + "_" + "aB3dE5fG7hJ9kL2mN4pQ6rS8tU0vW1xYzz"
HAS_ZSTD = any(
    importlib.util.find_spec(name.partition(".")[0]) and importlib.util.find_spec(name)
    for name in ("compression.zstd", "zstandard")
    if importlib.util.find_spec(name.partition(".")[0])
)


def whole() -> Recording:
    return Recording(
        tool_version="1",
        taken_at=1.5,
        duration_s=2.5,
        host="root@box",
        url="http://box:8000",
        options={"quick": True, "argv": ["vllm", "serve", "m", "--port", "8000"], "limit": 3, "none": None},
        snapshots={
            "before": {
                "a": CommandResult(key="a", status=0, stdout="x\0y\ufffd", stderr="e", elapsed_s=0.1),
                "b": CommandResult(key="b", status=None, timed_out=True, remark="cut"),
            },
            "after": {"a": CommandResult(key="a", status=1)},
        },
        probes={
            "/v1/models": Answer(key="/v1/models", status=200, headers=(("server", "uvicorn"),), body="{}")
        },
        answers={
            "fact": {"one": Answer(key="one", status=200, body="é😀", arrivals=((0.1, 2), (0.2, 6)))},
            "code": {"one": Answer(key="one", problem=Problem.RESET, detail="broke")},
        },
        programs={"code": {"one": ProgramResult(key="one", results=("1", "!TypeError: x"))}},
    )


@pytest.mark.parametrize("name", ["r.json.gz", "r.bringup", "r"])
def test_a_recording_comes_back_as_it_was(tmp_path, name):
    recordings.save(tmp_path / name, whole())
    loaded = recordings.load(tmp_path / name)
    assert loaded == whole()
    assert (tmp_path / name).read_bytes()[:2] == b"\x1f\x8b"
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_zstd_by_name_or_a_word_why_not(tmp_path):
    path = tmp_path / "r.json.zst"
    if HAS_ZSTD:
        recordings.save(path, whole())
        assert path.read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
        assert recordings.load(path) == whole()
        return
    with pytest.raises(UsageError, match="zstd"):
        recordings.save(path, whole())
    path.write_bytes(b"\x28\xb5\x2f\xfd rest")
    with pytest.raises(UsageError, match="zstd"):
        recordings.load(path)


def test_the_same_recording_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        recordings.save(tmp_path / name, whole())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_plain_json_and_unknown_fields_are_read(tmp_path):
    data = json.loads(recordings.encode(whole())) | {"later": {"x": 1}}
    (tmp_path / "r.json").write_text(json.dumps(data))
    assert recordings.load(tmp_path / "r.json") == whole()


def packed(text: str) -> bytes:
    return gzip.compress(text.encode())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a recording"),
        (b"hello", "not a recording"),
        (b"\x1f\x8bhello", "not a recording"),
        (b"\x89PNG\r\n", "not a recording"),
        (b"[]", "not a recording"),
        (b"{}", "schema is missing"),
        (b'{"schema": 3}', "not a recording"),
        (b'{"schema": "bringup/report/1"}', "`bringup/report/1`"),
        (packed('{"schema": "bringup/recording/2"}'), "`bringup/recording/2`"),
        (b'{"schema": "bringup/recording/1", "host": 3}', "damaged"),
        (b'{"schema": "bringup/recording/1", "answers": {"a": {"b": {"status": "x"}}}}', "damaged"),
        (b"[" * 100_000, "not a recording"),
    ],
)
def test_what_is_no_recording_is_said_so(tmp_path, data, words):
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        recordings.load(path)
    assert words in caught.value.message
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_a_newer_schema_asks_for_a_newer_bringup():
    with pytest.raises(UsageError) as caught:
        recordings.decode(b'{"schema": "bringup/recording/9", "host": {"new": "shape"}}')
    assert "newer" in caught.value.hint


def test_a_recording_cut_anywhere_is_never_half_read(tmp_path):
    recordings.save(tmp_path / "r", whole())
    data = (tmp_path / "r").read_bytes()
    for size in range(len(data)):
        (tmp_path / "r").write_bytes(data[:size])
        with pytest.raises(UsageError):
            recordings.load(tmp_path / "r")


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "_SIZE_LIMIT", 1000)
    (tmp_path / "r").write_bytes(gzip.compress(b" " * 5000))
    with pytest.raises(UsageError, match="more than"):
        recordings.load(tmp_path / "r")


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        recordings.load(tmp_path / "none")
    with pytest.raises(UsageError, match="cannot read"):
        recordings.load(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="cannot write"):
        recordings.save(tmp_path / "file" / "below", whole())


def test_a_failed_write_leaves_the_old_recording(tmp_path):
    (tmp_path / "r").mkdir()  # a folder cannot be replaced by a file
    with pytest.raises(UsageError):
        recordings.save(tmp_path / "r", whole())
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_no_part_of_a_recording_lets_a_secret_through():
    def said(key):
        return CommandResult(
            key=key, status=0, stdout=f"HF_TOKEN=abc-77\n{KEY}", stderr=f"--api-key abc-77 {KEY}"
        )

    def answer(key):
        return Answer(
            key=key,
            headers=(("set-cookie", "s=abc-77"), ("x-echo", KEY)),
            body=json.dumps({"api_key": "abc-77", "seen": TOKEN, "echo": KEY}),
            detail=f"sent {KEY}",
        )

    leaky = Recording(
        host=f"root:{KEY}@box",
        url="http://:abc-77@box",
        options={
            "api_key": "abc-77",
            "command": ["serve", "--api-key", "abc-77", "--port", "1"],
            "environment": {"HF_TOKEN": "abc-77", "list": [{"password": "abc-77"}, 3]},
            "url": f"http://box/{KEY}",
        },
        snapshots={"before": {"a": said("a")}},
        probes={"/info": answer("/info")},
        answers={"fact": {"a": answer("a")}},
        programs={"code": {"a": ProgramResult(key="a", results=(KEY, TOKEN), problem=KEY)}},
    )
    text = recordings.encode(leaky, [KEY]).decode()
    assert not [word for word in ("abc-77", KEY, TOKEN) if word in text]
    assert '"--port","1"' in text
    assert recordings.encode(recordings.decode(text.encode()), [KEY]).decode() == text


def test_what_the_model_wrote_stays_what_it_was():
    code = '{"choices":[{"message":{"content":"password = \\"x\\"\\ntoken: abc"}}]}'
    kept = Recording(answers={"code": {"a": Answer(key="a", body=code)}})
    assert recordings.decode(recordings.encode(kept)).answers["code"]["a"].body == code


def test_arrival_times_still_point_at_the_same_text():
    body = f"é {TOKEN} middle {KEY} end"
    ends = [
        len(body[: body.index(part) + len(part)].encode()) for part in ("é ", TOKEN, "middle ", KEY, "end")
    ]
    inside = len(f"é {TOKEN[:9]}".encode())
    arrivals = tuple((float(at), size) for at, size in enumerate([ends[0], inside, *ends[1:]]))
    kept = Recording(answers={"fact": {"a": Answer(key="a", body=body, arrivals=arrivals)}})
    moved = recordings.decode(recordings.encode(kept, [KEY])).answers["fact"]["a"]
    data = moved.body.encode()
    assert [data[:size].decode() for _, size in moved.arrivals] == [
        "é ",
        f"é {REDACTED}",
        f"é {REDACTED}",
        f"é {REDACTED} middle ",
        f"é {REDACTED} middle {REDACTED}",
        f"é {REDACTED} middle {REDACTED} end",
    ]


def test_a_replayed_host_answers_as_recorded():
    async def replayed():
        runner = ReplayRunner(whole())
        before = await runner.ask([Question(key="a", argv=("x",)), Question(key="new", argv=("y",))])
        after = await runner.at("after").ask([Question(key="a", argv=("x",)), Question(key="b", argv=("y",))])
        await runner.close()
        return runner.host, before, after

    host, before, after = asyncio.run(replayed())
    assert host == "root@box"
    assert before["a"] == whole().snapshots["before"]["a"]
    assert (before["new"].status, before["new"].skipped) == (None, "not in the recording")
    assert before["transport.clock"].skipped
    assert after["a"].status == 1
    assert after["b"].skipped


def test_a_replayed_endpoint_answers_as_recorded():
    async def replayed():
        endpoint = ReplayEndpoint(whole())
        keys = ("/v1/models", "/metrics", "fact/one", "code/one", "fact/two", "new/one")
        answers = [await endpoint.send(Ask(key=key)) for key in keys]
        await endpoint.close()
        return answers

    models, metrics, fact, code, two, new = asyncio.run(replayed())
    assert models.status == 200
    assert fact == whole().answers["fact"]["one"]
    assert code.problem is Problem.RESET
    for missing in (metrics, two, new):
        assert (missing.status, missing.problem) == (None, Problem.NOT_ASKED)
        assert "recording" in missing.detail


def test_a_live_snapshot_replays_to_the_same_results(tmp_path):
    questions = [
        Question(key="a", script="echo HF_TOKEN=abc; echo e >&2; exit 3"),
        Question(key="b", argv=("sleep", "9"), time_limit_s=0.2, group="g"),
        Question(key="c", argv=("true",), group="g"),
        Question(key="d", argv=("head", "-c", "2000", str(Path("/dev/urandom")))),
    ]
    live = asyncio.run(LocalRunner().ask(questions))
    recordings.save(tmp_path / "r", Recording(host="local", snapshots={"before": dict(live)}))
    replay = ReplayRunner(recordings.load(tmp_path / "r"))
    assert asyncio.run(replay.ask(questions)) == live
