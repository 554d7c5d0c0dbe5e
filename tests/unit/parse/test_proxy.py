import pytest

from bringup.parse.proxy import proxies_in_front
from bringup.values.exchange import Answer


def seen(*headers: tuple[str, str], body: str = "", status: int = 200, path: str = "/v1/models") -> str:
    answer = Answer(key=path, status=status, headers=headers, body=body)
    return ", ".join(proxies_in_front({path: answer}))


@pytest.mark.parametrize(
    ("header", "name"),
    [
        (("server", "nginx"), "nginx"),
        (("server", "openresty/1.25.3.1"), "nginx"),
        (("server", "Caddy"), "caddy"),
        (("via", "1.1 Caddy"), "caddy"),
        (("server", "cloudflare"), "cloudflare"),
        (("cf-ray", "8f00-FRA"), "cloudflare"),
        (("server", "istio-envoy"), "envoy"),
        (("x-envoy-upstream-service-time", "12"), "envoy"),
        (("x-litellm-call-id", "1"), "litellm"),
        (("x-kong-proxy-latency", "1"), "kong"),
        (("server", "awselb/2.0"), "aws load balancer"),
        (("via", "1.1 google"), "google front end"),
    ],
)
def test_headers(header: tuple[str, str], name: str) -> None:
    assert seen(header) == name


@pytest.mark.parametrize("server", ["uvicorn", "llama.cpp", "Werkzeug/3.0", "hypercorn-h11", "granian"])
def test_an_engines_own_web_server_is_no_proxy(server: str) -> None:
    assert seen(("server", server), ("date", "Mon"), ("vary", "Origin")) == ""


def test_bodies() -> None:
    assert seen(body='{"data": [{"id": "m", "owned_by": "llama-swap"}]}') == "llama-swap"
    assert seen(body="<hr><center>nginx/1.22</center>", status=502) == "nginx"
    assert seen(body="<h1>503</h1>\nNo server is available to handle this request.", status=503) == "haproxy"
    assert seen(body="no available server\n", status=503) == "traefik"
    assert seen(body='{"status": true}', path="/health") == "open-webui"
    assert seen(body='{"status":"ok"}', path="/health") == ""
    assert seen(body='a 1\nvllm:current_qps{server="x"} 1\n', path="/metrics") == "vllm router"


def test_a_chain_is_told_whole() -> None:
    assert seen(("server", "cloudflare"), ("via", "1.1 Caddy")) == "caddy, cloudflare"


def test_a_word_far_inside_a_body_is_no_proxy() -> None:
    assert seen(body="x" * 5000 + "LiteLLM") == ""
