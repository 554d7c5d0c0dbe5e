"""What stands in front of the engine, told by the headers and bodies that engines do not send themselves."""

from collections.abc import Mapping

from bringup.values.exchange import Answer

# (part of the `Server` or `Via` header, name)
_NAMED = (
    ("cloudflare", "cloudflare"),
    ("openresty", "nginx"),
    ("nginx", "nginx"),
    ("caddy", "caddy"),
    ("envoy", "envoy"),
    ("traefik", "traefik"),
    ("haproxy", "haproxy"),
    ("apache", "apache"),
)


def proxies_in_front(answers: Mapping[str, Answer]) -> tuple[str, ...]:
    """The names of all proxies, gateways and routers that show themselves, in alphabetical order."""
    found: set[str] = set()
    for answer in answers.values():
        for name, value in answer.headers:
            if name in ("server", "via"):
                found |= {known for part, known in _NAMED if part in value.lower()}
    return tuple(sorted(found))
