"""`bringup diagnose` of what docker, podman, compose, rsyslog and kubectl themselves write."""

import contextlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from .conftest import wait_until

ROOT = Path(__file__).parents[3]
SAYS = """
echo "vllm serve m --port=8000"
printf '  0%%|  \\r 50%%|# \\r100%%|##\\n'
where="('0.0.0.0', 8000)"
echo "OSError: [Errno 98] error while attempting to bind on address $where: address already in use" >&2
exit 1
"""
IMAGE = "bringup-test-image"


def diagnose(*arguments: str, text: bytes = b"", **variables: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **variables}
    argv = [sys.executable, "-m", "bringup", "diagnose", "--quiet", *arguments]
    return subprocess.run(argv, input=text, capture_output=True, env=environment, check=False)


def first_kind(done: subprocess.CompletedProcess[bytes]) -> str:
    assert done.stdout, done.stderr
    return json.loads(done.stdout)["findings"][0]["id"]


def run(*argv: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, **more)


@pytest.fixture(scope="module")
def root_folder(tmp_path_factory):
    """The files of a container: one static shell that writes the log."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("NOT TESTED: no busybox here (Debian: apt-get install busybox-static)")
    folder = tmp_path_factory.mktemp("root")
    (folder / "bin").mkdir()
    shutil.copy(busybox, folder / "bin" / "busybox")
    (folder / "bin" / "sh").symlink_to("busybox")
    (folder / "says").write_text(SAYS)
    return folder


@pytest.fixture(scope="module")
def docker(tmp_path_factory, root_folder):
    """What reaches a daemon of its own, with an image and a container that has ended."""
    daemon = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin")
    if daemon is None or shutil.which("docker") is None or os.geteuid() != 0:
        pytest.skip("NOT TESTED: no dockerd here, or not root (Debian: apt-get install docker.io)")
    folder = tmp_path_factory.mktemp("d")
    socket = f"unix://{folder}/s"
    argv = [
        daemon,
        "--iptables=false",
        "--bridge=none",
        "--storage-driver=vfs",
        "-H",
        socket,
        "-p",
        f"{folder}/pid",
    ]
    argv += ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"]
    with (folder / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        try:
            reached = {**os.environ, "DOCKER_HOST": socket}
            wait_until(
                lambda: process.poll() is not None or run("docker", "info", env=reached).returncode == 0,
                "dockerd",
            )
            if process.poll() is not None:
                pytest.skip(f"NOT TESTED: dockerd does not run here: {(folder / 'log').read_text()[-300:]}")
            packed = run("sh", "-c", f"tar -C {root_folder} -c . | docker import - {IMAGE}", env=reached)
            assert packed.returncode == 0, packed.stderr
            run("docker", "run", "--name", "llm", "--network=none", IMAGE, "/bin/sh", "/says", env=reached)
            yield {"DOCKER_HOST": socket}
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture
def podman(root_folder):
    """The name of a podman container that has ended."""
    if shutil.which("podman") is None or shutil.which("runc") is None or os.geteuid() != 0:
        pytest.skip("NOT TESTED: no podman with runc here, or not root (Debian: apt-get install podman runc)")
    name = f"bringup-test-{os.getpid()}"
    limits = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "--network=none")
    argv = ("podman", "--runtime=runc", "run", "--name", name, *limits, "--rootfs", str(root_folder))
    try:
        done = run(*argv, "/bin/sh", "/says")
        if "vllm serve" not in done.stdout:
            pytest.skip(f"NOT TESTED: podman runs no container here: {done.stderr[-300:]}")
        yield name
    finally:
        run("podman", "rm", "--force", name)


def test_a_podman_container_s_log_is_read(podman):
    done = diagnose("--container", podman, "--json", DOCKER_HOST="unix:///nowhere/docker.sock")
    assert (first_kind(done), done.returncode) == ("host.port", 1)


def test_a_docker_container_s_log_is_read_and_an_image_of_that_name_is_none(docker):
    assert first_kind(diagnose("--container", "llm", "--json", **docker)) == "host.port"
    missing = diagnose("--container", IMAGE, **docker)
    assert missing.returncode == 3
    assert f"o such container: {IMAGE}" in missing.stderr.decode()


def test_over_ssh_the_container_is_asked_there(docker, start_sshd):
    there = f'DOCKER_HOST={docker["DOCKER_HOST"]}; export DOCKER_HOST; exec sh -c "$SSH_ORIGINAL_COMMAND"'
    server = start_sshd(forced_command=there)
    done = diagnose("--container", "llm", "--host", "box", "--json", BRINGUP_SSH_CONFIG=server.config)
    assert first_kind(done) == "host.port"


def test_a_daemon_that_is_not_reached_is_said():
    if shutil.which("docker") is None:
        pytest.skip("NOT TESTED: no docker here (Debian: apt-get install docker.io)")
    done = diagnose("--container", "llm", DOCKER_HOST="unix:///nowhere/docker.sock")
    assert done.returncode == 3
    assert "docker daemon" in done.stderr.decode()


def test_what_compose_writes_is_read(docker, tmp_path):
    if shutil.which("docker-compose") is None:
        pytest.skip("NOT TESTED: no docker-compose here (Debian: apt-get install docker-compose)")
    service = {"image": IMAGE, "network_mode": "none", "command": ["/bin/sh", "/says"]}
    proxy = {"image": IMAGE, "network_mode": "none", "command": ["/bin/sh", "-c", "echo up; exit 0"]}
    folder = tmp_path / "stack"
    folder.mkdir()
    (folder / "docker-compose.yml").write_text(
        json.dumps({"version": "3", "services": {"vllm": service, "proxy": proxy}})
    )
    environment = {**os.environ, **docker}
    try:
        up = run("docker-compose", "up", cwd=folder, env=environment)
        logs = run("docker-compose", "logs", "--timestamps", cwd=folder, env=environment)
    finally:
        run("docker-compose", "down", cwd=folder, env=environment)
    for text in (up.stdout, logs.stdout):
        assert "| " in text
        assert first_kind(diagnose("-", "--json", text=text.encode())) == "host.port"


def test_what_rsyslog_writes_is_read(tmp_path):
    daemon = shutil.which("rsyslogd", path=f"{os.environ['PATH']}:/usr/sbin")
    if daemon is None or shutil.which("logger") is None:
        pytest.skip("NOT TESTED: no rsyslogd here (Debian: apt-get install rsyslog)")
    forms = ("FileFormat", "TraditionalFileFormat", "SyslogProtocol23Format")
    lines = ['module(load="imuxsock" SysSock.Use="off")', f'input(type="imuxsock" Socket="{tmp_path}/s")']
    lines += [f'*.* action(type="omfile" file="{tmp_path}/{one}" template="RSYSLOG_{one}")' for one in forms]
    (tmp_path / "conf").write_text("\n".join(lines) + "\n")
    argv = [daemon, "-n", "-f", str(tmp_path / "conf"), "-i", str(tmp_path / "pid")]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until((tmp_path / "s").exists, "rsyslog's socket")
            script = tmp_path / "says"
            script.write_text(SAYS)
            run("sh", "-c", f"sh {script} 2>&1 | logger -u {tmp_path}/s -t vllm -i")
            wait_until(lambda: all(_has(tmp_path / one, "already in use") for one in forms), "the files")
        finally:
            process.terminate()
            process.wait(20)
    for one in forms:
        assert first_kind(diagnose(str(tmp_path / one), "--json")) == "host.port"


class _Cluster(http.server.BaseHTTPRequestHandler):
    """As much of a cluster's API as `kubectl logs` asks for: one pod, and its log."""

    log = b""

    def do_GET(self):
        path = self.path.split("?")[0]
        pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "vllm-0", "namespace": "default"},
               "spec": {"containers": [{"name": "vllm", "image": "x"}]}, "status": {}}  # fmt: skip
        resource = {
            "name": "pods",
            "singularName": "pod",
            "namespaced": True,
            "kind": "Pod",
            "verbs": ["get"],
        }
        answers = {
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource]},
            "/api/v1/namespaces/default/pods/vllm-0": pod,
        }
        is_log = path.endswith("/log")
        body = self.stamped() if is_log else json.dumps(answers.get(path, {})).encode()
        self.send_response(200 if is_log or path in answers else 404)
        self.send_header("Content-Type", "text/plain" if is_log else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stamped(self) -> bytes:
        """The log; with a time before each line where that is asked for."""
        if "timestamps=true" not in self.path:
            return self.log
        lines = self.log.splitlines(keepends=True)
        return b"".join(b"2026-03-04T05:06:07.%09dZ %b" % pair for pair in enumerate(lines))

    def log_message(self, *words):
        """Nothing on standard error."""


@pytest.mark.parametrize("options", [(), ("--previous",), ("--timestamps",), ("--prefix", "--timestamps")])
def test_what_kubectl_prints_is_read(options, tmp_path):
    if shutil.which("kubectl") is None:
        pytest.skip("NOT TESTED: no kubectl here (Debian: apt-get install kubernetes-client)")
    _Cluster.log = run("sh", "-c", f"{{ {SAYS} }} 2>&1").stdout.encode()
    assert b"already in use" in _Cluster.log
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Cluster) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        argv = (
            "kubectl",
            "--server",
            f"http://127.0.0.1:{server.server_port}",
            "logs",
            "pod/vllm-0",
            *options,
        )
        printed = run(*argv, env={**os.environ, "HOME": str(tmp_path), "KUBECONFIG": "/dev/null"})
        server.shutdown()
    assert "already in use" in printed.stdout, printed.stderr
    assert first_kind(diagnose("-", "--json", text=printed.stdout.encode())) == "host.port"


def _has(path: Path, text: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return text in path.read_text()
    return False
