"""What stands in front of the engine, told by headers and bodies that engines do not send themselves.

Source: the programs' own documentation of the headers they add, and their built-in error pages.
"""

from collections.abc import Iterable, Iterator, Mapping

from bringup.values.exchange import Answer

# part of the value of `Server` or `Via`, in lower case -> name
_SERVERS = {
    "apache/": "apache",
    "apisix": "apisix",
    "awselb": "aws load balancer",
    "caddy": "caddy",
    "cloudflare": "cloudflare",
    "envoy": "envoy",
    "google": "google front end",
    "haproxy": "haproxy",
    "kong": "kong",
    "litellm": "litellm",
    "nginx": "nginx",
    "openresty": "nginx",
    "tengine": "nginx",
    "traefik": "traefik",
    "varnish": "varnish",
}
# beginning of the name of a header -> name
_HEADERS = {
    "cf-ray": "cloudflare",
    "fly-request-id": "fly.io",
    "ngrok-": "ngrok",
    "x-amz-cf-id": "cloudfront",
    "x-amzn-requestid": "aws api gateway",
    "x-envoy-": "envoy",
    "x-kong-": "kong",
    "x-litellm-": "litellm",
    "x-olla-": "olla",
    "x-portkey-": "portkey",
    "x-varnish": "varnish",
    "x-vercel-": "vercel",
}
# a text in the first bytes of a body -> name
_BODIES = {
    "<center>nginx": "nginx",
    "<title>Open WebUI": "open-webui",
    '"owned_by":"llama-swap"': "llama-swap",
    "LiteLLM": "litellm",
    "litellm_version": "litellm",
    "No server is available to handle this request": "haproxy",
    "upstream connect error or disconnect/reset before headers": "envoy",
}
_METRICS = {
    "vllm:current_qps": "vllm router",
    "vllm:healthy_pods_total": "vllm router",
    "dynamo_frontend_": "dynamo",
    "litellm_": "litellm",
    "smg_": "sglang router",
    "sgl_router_": "sglang router",
}
_LOOKED_AT = 4_000  # characters of a body


def proxies_in_front(answers: Mapping[str, Answer]) -> tuple[str, ...]:
    """The names of all proxies, gateways and routers that show themselves, in alphabetical order."""
    found: set[str] = set()
    for path, answer in answers.items():
        found |= set(_in_headers(answer.headers))
        found |= set(_in_body(path, answer))
    return tuple(sorted(found))


def _in_headers(headers: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, value in headers:
        if name in ("server", "via"):
            yield from (known for part, known in _SERVERS.items() if part in value.lower())
        yield from (known for start, known in _HEADERS.items() if name.startswith(start))


def _in_body(path: str, answer: Answer) -> Iterator[str]:
    start = answer.body[:_LOOKED_AT]
    tight = start.replace('": "', '":"')
    yield from (known for text, known in _BODIES.items() if text in tight)
    if answer.status == 503 and start.strip() == "no available server":
        yield "traefik"
    if path == "/health" and tight.replace(" ", "") == '{"status":true}':
        yield "open-webui"
    if path.startswith("/metrics") and answer.status == 200:
        yield from (known for text, known in _METRICS.items() if f"\n{text}" in f"\n{answer.body}")
