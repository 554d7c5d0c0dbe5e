"""What load generators cost and how far they are off, measured side by side against a server that knows.

The server is a mock in C whose own log is the truth. Each round puts the same load on it with one client
after the other, the next round in the opposite order, so that what else happens on the machine meets all of
them; prices are ratios to a bare reader in C within the round. Times on a busy machine scatter, ratios less.

    python bench/load_peers.py --clients "raw C,bringup" --rounds 5
    python bench/load_peers.py --peers ~/peers --install aiperf,guidellm,inference-perf,sglang,vllm
    python bench/load_peers.py --peers ~/peers --env vllm=~/vllm --json all.json
    python bench/load_peers.py --measures linear --clients "raw C,bringup"
    python bench/load_peers.py --from all.json --from linear.json --page docs/explanation/bench-peers.md

Measures: `pace` (price and timing errors, the server's interval 20 ms), `start` (one short request), `memory`
(1,024 streams), `peak` (the server as fast as the socket takes it), `linear` (16 to 8,192 streams, twice: at
one pace, and with the same events over ever more of them), `requests` (of one token, as fast as they go),
`unpinned` (256 streams on any core).
"""

import argparse
import dataclasses
import datetime as dt
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import load_mock
import load_process
import load_setup
import load_table
from load_clients import Client, Job, Words, environment
from load_mock import Pace, Programs, Rank

_LINEAR_STREAMS = (16, 64, 256, 1024, 4096, 8192)
_LINEAR_PACE = Pace(ttft_us=200_000, itl_us=200_000)  # 8,192 streams are 41,000 events a second
_EVEN_EVENTS_PER_S = 25_600  # of the second linear series: the same events, over ever more streams
_AS_FAST_AS_IT_GOES = Pace(ttft_us=0, itl_us=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One load of one measure."""

    measure: str
    pace: Pace
    streams: int
    requests: int
    tokens: int
    is_pinned: bool = True
    samples: bool = False  # memory


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """Every load of a round."""
    paced = Pace()
    if "start" in options.measures:
        yield Case(measure="start", pace=paced, streams=1, requests=1, tokens=10)
    if "pace" in options.measures:
        for streams in options.streams:
            yield Case(measure="pace", pace=paced, streams=streams, requests=2 * streams, tokens=100)
    if "unpinned" in options.measures:
        yield Case(measure="unpinned", pace=paced, streams=256, requests=512, tokens=100, is_pinned=False)
    if "memory" in options.measures:
        yield Case(measure="memory", pace=paced, streams=1024, requests=1024, tokens=100, samples=True)
    if "peak" in options.measures:
        pace = dataclasses.replace(_AS_FAST_AS_IT_GOES, events_per_write=options.events_per_write)
        yield Case(
            measure="peak", pace=pace, streams=64, requests=options.peak_requests, tokens=200, is_pinned=False
        )
    if "requests" in options.measures:
        pace = _AS_FAST_AS_IT_GOES
        yield Case(measure="requests", pace=pace, streams=64, requests=3000, tokens=1)
    if "linear" in options.measures:
        yield from _linear_cases()


def _linear_cases() -> Iterator[Case]:
    for streams in _LINEAR_STREAMS:
        yield Case(measure="linear", pace=_LINEAR_PACE, streams=streams, requests=2 * streams, tokens=10)
    for streams in _LINEAR_STREAMS:
        interval = round(1e6 * streams / _EVEN_EVENTS_PER_S)
        tokens = 2 * _EVEN_EVENTS_PER_S // streams
        pace = Pace(ttft_us=interval, itl_us=interval)
        yield Case(measure="even", pace=pace, streams=streams, requests=streams, tokens=tokens)


def measured(
    case: Case,
    clients: Sequence[Client],
    number: int,
    options: argparse.Namespace,
    programs: Programs,
    words: Words,
) -> Iterator[dict[str, Any]]:
    """One load with each client in turn; in every second round the other way round."""
    server, own = (options.server_core, options.client_core) if case.is_pinned else (None, None)
    rank = rank_of(options)
    if case.samples:  # the sampling reads /proc: see `load_process._end_group`
        rank = dataclasses.replace(rank, real_time=False)
    with load_mock.running(programs.mock, case.pace, core=server, rank=rank) as mock:
        for client in clients if number % 2 == 0 else reversed(clients):
            mock.reset()
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
                job = Job(
                    port=mock.port, streams=case.streams, requests=case.requests, tokens=case.tokens,
                    folder=Path(name), words=words,
                )  # fmt: skip
                cost = load_process.run(
                    load_mock.placed(client.command(job), core=own, rank=rank),
                    environment=environment(client, words),
                    folder=job.folder,
                    limit_s=options.limit_s,
                    sample=case.samples,
                )
                reported, problem = read(client, job, cost)
            truth = mock.truth(case.requests)
            yield {
                "client": client.name,
                "round": number,
                "case": dataclasses.asdict(case),
                "cost": {"cpu_s": cost.cpu_s, "wall_s": cost.wall_s, "processes": cost.processes,
                         "peak_memory_bytes": cost.peak_memory, "status": cost.status},
                "reported": reported,
                "problem": problem,
                "truth": None if truth is None else dataclasses.asdict(truth),
                "load_average": os.getloadavg()[0],
            }  # fmt: skip


def read(client: Client, job: Job, cost: load_process.Cost) -> tuple[dict[str, Any] | None, str]:
    """What the client reported, or why there is nothing."""
    if cost.status is None:
        return None, "not finished within the time limit"
    try:
        return dataclasses.asdict(client.read(job, cost.stdout)), ""
    except (OSError, ValueError, LookupError, TypeError) as error:
        last = (cost.stderr.strip().splitlines() or [""])[-1]
        return None, f"no result, status {cost.status}: {last[:200] or error!r}"


def show(run: Mapping[str, Any]) -> None:
    """One line as it happens."""
    case, cost, reported, truth = run["case"], run["cost"], run["reported"], run["truth"]
    words = (
        f"{case['measure']:9} {case['streams']:>5} streams  {run['client']:<18} cpu {cost['cpu_s']:7.3f} s"
    )
    words += f"  wall {cost['wall_s']:6.2f} s"
    if reported and truth and reported["ttft_s"] is not None:
        words += f"  ttft {1e3 * (reported['ttft_s'] - truth['ttft_s']):+8.2f} ms"
        if reported["itl_s"] and truth["itl_s"]:
            words += f"  itl {100 * (reported['itl_s'] / truth['itl_s'] - 1):+7.3f} %"
    print(words, run["problem"], file=sys.stderr, flush=True)


def options_of(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    listed = {
        "type": lambda text: [word.strip() for word in text.split(",") if word.strip()],
        "metavar": "A,B",
    }
    parser.add_argument("--measures", default=["start", "pace", "memory", "peak"], **listed)
    parser.add_argument(
        "--clients", default=[], help="by name, as in the table; all that are there", **listed
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--streams", default=[64, 1024], help="of `pace`", metavar="A,B",
                        type=lambda text: [int(word) for word in text.split(",")])  # fmt: skip
    parser.add_argument("--peak-requests", type=int, default=500, help="of 200 tokens each")
    parser.add_argument("--events-per-write", type=int, default=1, help="of the server, in `peak`")
    parser.add_argument(
        "--sources", type=Path, default=load_mock.SOURCES, help="has mockllm.c and rawclient.c"
    )
    parser.add_argument("--peers", type=Path, help="folder with an environment for each peer")
    parser.add_argument("--install", default=[], help="peers to install there", **listed)
    parser.add_argument("--pip", nargs="+", default=[], help="further requirements, e.g. torch without CUDA")
    parser.add_argument(
        "--env", action="append", default=[], metavar="PEER=FOLDER", help="an environment it is in"
    )
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument(
        "--nice", type=int, default=-19 if os.geteuid() == 0 else 0, help="of server and clients"
    )
    parser.add_argument(
        "--real-time", action="store_true", help="before all else on their cores, but for `memory`"
    )
    parser.add_argument("--limit-s", type=float, default=60.0, help="for one run of one client")
    parser.add_argument("--json", type=Path, help="write every run there")
    parser.add_argument("--page", type=Path, help="put the tables between the marks of this page")
    parser.add_argument("--from", dest="earlier", action="append", default=[], type=Path, metavar="JSON",
                        help="measure nothing, show these")  # fmt: skip
    return parser.parse_args(argv)


def rank_of(options: argparse.Namespace) -> Rank:
    return Rank(nice=options.nice, real_time=options.real_time)


def environments(options: argparse.Namespace) -> dict[str, Path]:
    """Where each peer is installed."""
    found: dict[str, Path] = {}
    if options.peers is not None:
        found = {
            name: options.peers / name for name in load_setup.REQUIREMENTS if (options.peers / name).is_dir()
        }
    for given in options.env:
        name, _, place = given.partition("=")
        if name not in load_setup.REQUIREMENTS:
            sys.exit(f"no peer {name!r}: one of {', '.join(load_setup.REQUIREMENTS)}")
        found[name] = Path(place).expanduser()
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Every run of every round."""
    if options.install:
        if options.peers is None:
            sys.exit("--install needs --peers, the folder to install into")
        load_setup.install(options.install, options.peers, options.pip)
    rank_of(options).take()
    load_process.adopt_orphans()
    load_mock.raise_descriptor_limit()
    places = environments(options)
    whole: dict[str, Any] = {
        "taken": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "machine": load_mock.machine(),
        "rank": rank_of(options).words,
        "versions": load_setup.versions(places),
        "runs": [],
    }
    with tempfile.TemporaryDirectory() as name:
        programs = load_mock.build(Path(name), options.sources)
        mock = (options.sources / "mockllm.c").read_text(encoding="utf-8")
        words = load_setup.words(mock, Path(name) / "words")
        clients = load_setup.clients(programs.raw, places, options.clients)
        for number in range(options.rounds):
            for case in cases(options):
                for run in measured(case, clients, number, options, programs, words):
                    show(run)
                    whole["runs"].append(run)
                    if options.json is not None:  # after every run: what was measured is kept
                        options.json.write_text(json.dumps(whole, indent=1), encoding="utf-8")
    return whole


def main() -> None:
    options = options_of()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that server and client end, too
    if options.earlier:
        found = [json.loads(path.read_text(encoding="utf-8")) for path in options.earlier]
    else:
        found = [measure(options)]
    text = load_table.render(found)
    print(text)
    if options.page is not None:
        options.page.write_text(
            load_table.placed(options.page.read_text(encoding="utf-8"), text), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
