"""The proof that faults around a cluster end as documented, with a clear message."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from children import BENCH, LONGLINE, Child, Ended, environment
from cluster_parts import Cluster, RedisServer, free_port, open_cluster
from nginx import Limit, Server, serving
from old_redis import old_redis
from pages import write_pages
from proofs import Figure, Proof, Sizes, none, nothing_wrong, unjudged
from stalling import StallingProxy

NAME = "cluster-faults"
_RATE, _BURST = 2, 5
_PAGES = 120
_CHUNK = 10  # small, so that every process has some of the job
_HOUR = 3600.0
_SECRET = "wrong-9137"  # noqa: S105  # the wrong one
_SOON = 30.0  # seconds in which a command that cannot work must report it
_PATIENCE = 300.0
_TOO_MANY = 429
_DISK = "24m"
_TIME = re.compile(r"^\d\d:\d\d:\d\d |^\d{4}-\d\d-\d\d \S+ ")


def prove(sizes: Sizes) -> Proof:
    """Cause each fault and check how it ends."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pages(folder / "site", _PAGES)
        trials: list[Callable[[], list[Figure]]] = [
            _wrong_password,
            _wrong_version,
            lambda: _unreachable(folder),
            lambda: _stalled(folder, sizes.stall),
            lambda: _clock_off(folder, _HOUR),
            lambda: _clock_off(folder, -_HOUR),
            lambda: _full_disk(folder),
        ]
        for trial in trials:
            figures += _told_of(trial)
    about = (
        "A wrong password, a Redis of an old version, a Redis that is unreachable when a worker "
        f"starts, one that stalls for {sizes.stall:g} s during a run behind a proxy, a worker "
        "whose clock is an hour ahead or behind, and a full disk under a SQLite home. In the "
        f"cases with a limit, nginx allows {_RATE} requests per second with a burst of {_BURST}, "
        "and requests are counted in its log. Messages are quoted."
    )
    return Proof(NAME, about, figures)


def _told_of(trial: Callable[[], list[Figure]]) -> list[Figure]:
    try:
        return trial()
    except Exception as error:  # noqa: BLE001  # the edge of a trial: the others go on
        print(f"{type(error).__name__}: {error}")
        return [nothing_wrong(f"a trial ran to its end ({type(error).__name__})", ["it did not"])]


# ---------------------------------------------------------------- refused immediately


def _wrong_password() -> list[Figure]:
    with open_cluster(redis_options=("--requirepass", "right")) as cluster:
        cluster.redis_url = f"redis://:{_SECRET}@127.0.0.1:{cluster.redis.port}/0"
        return [
            *_refused(
                cluster, "wrong password of Redis, worker", "worker", "-n", "1", names="password"
            ),
            *_refused(
                cluster,
                "wrong password of Redis, client",
                *("run", "page_source:Pages", "--engine", "celery"),
                *("--set", "base_url=http://127.0.0.1:9"),
                names="password",
            ),
        ]


def _wrong_version() -> list[Figure]:
    with open_cluster() as cluster, old_redis() as port:
        cluster.redis_url = f"redis://127.0.0.1:{port}/0"
        return _refused(cluster, "Redis 5, worker", "worker", "-n", "1", names="version")


def _refused(cluster: Cluster, title: str, *words: str, names: str) -> list[Figure]:
    """Run a command that must fail soon, name the cause, and not reveal the secret."""
    child = cluster.start([LONGLINE, *words])
    try:
        ended = child.wait(_SOON)
    except TimeoutError:
        said = _last(child.errors())
        child.end()
        return [
            nothing_wrong(
                f"{title}: exits with an error that names the cause", [f"it waits: {said}"]
            )
        ]
    return [
        nothing_wrong(
            f"{title}: exits with an error that names the cause", _wrong_in(ended, names)
        ),
        unjudged(f"{title}: it says", _last(ended.errors)),
    ]


def _wrong_in(ended: Ended, names: str) -> list[str]:
    found = []
    if ended.code in (0, -9):
        found.append(f"exit code {ended.code}")
    if "Traceback" in ended.errors:
        found.append("a traceback")
    if _SECRET in ended.errors + ended.output:
        found.append("the password is shown")
    if names not in ended.errors:
        found.append(f"it does not speak of the {names}")
    return found


# ---------------------------------------------------------------- waited for


def _unreachable(folder: Path) -> list[Figure]:
    """Start a worker and a client while Redis is unreachable; both continue later."""
    title = "Redis unreachable at the start"
    with serving(folder / "site", folder / "nginx-away") as server, open_cluster() as cluster:
        port = free_port()
        cluster.redis_url = f"redis://127.0.0.1:{port}/0"
        worker = cluster.hire("one", 1)
        client = cluster.start(
            [
                *(LONGLINE, "run", "page_source:Pages", "--engine", "celery", "--json"),
                *("--rate", "unlimited", "--set", f"base_url={server.url}", "--set", "count=20"),
            ]
        )
        said = _await_words(worker, "; waiting", _SOON)
        time.sleep(5)
        own = cluster.folder / "late-redis"
        own.mkdir()
        late = RedisServer(own, port=port)
        try:
            late.start()
            back_at = time.monotonic()
            ended = client.wait(_PATIENCE)
            seconds = time.monotonic() - back_at
        finally:
            cluster.end_workers()
            late.kill()
    wrong = [] if ended.code == 0 else [f"exit code {ended.code}: {_last(ended.errors)}"]
    return [
        nothing_wrong(f"{title}: the worker reports it and waits", [] if said else ["it does not"]),
        unjudged(f"{title}: it says", said or "nothing"),
        unjudged(f"{title}: the client says", _last(client.errors()) or "nothing"),
        nothing_wrong(f"{title}: the job is complete once it is reachable", wrong),
        unjudged(f"{title}: from its start to the end of the job", f"{seconds:.1f} s"),
    ]


def _stalled(folder: Path, seconds: float) -> list[Figure]:
    """Make Redis stall during a run."""
    title = f"Redis stalls for {seconds:g} s"
    with (
        _limited(folder, "nginx-stall") as server,
        open_cluster(chunk_size=_CHUNK) as cluster,
        StallingProxy(cluster.redis.port) as proxy,
    ):
        cluster.redis_url = f"redis://127.0.0.1:{proxy.port}/0"
        for name in ("one", "two"):
            cluster.hire(name, 2)
        cluster.await_workers()
        time.sleep(_BURST / _RATE + 1)
        job = _submit(cluster, server, _PAGES - 1)
        _await_stored(cluster, job, _PAGES // 4)
        proxy.stall()
        stalled_at = time.time()
        time.sleep(seconds)
        proxy.flow()
        back_at = time.time()
        cluster.judge.await_end(job, _PATIENCE)
        problems = cluster.judge.problems(job, _PAGES - 1)
        arrivals = server.arrivals()
        said = [line for text in cluster.logs().values() for line in text.splitlines()]
    meanwhile = [one for one in arrivals if stalled_at + 1 < one.at < back_at]
    later = [one.at - back_at for one in arrivals if one.at > back_at]
    troubles = [line for line in said if "edis" in line]
    return [
        none(f"{title}: responses with 429", sum(one.status == _TOO_MANY for one in arrivals)),
        nothing_wrong(f"{title}: {_PAGES - 1} items stored exactly once, and one end", problems),
        unjudged(f"{title}: requests meanwhile, after the first second", len(meanwhile)),
        unjudged(f"{title}: from its end to the next request", f"{min(later, default=-1):.1f} s"),
        nothing_wrong(f"{title}: a worker reports it", [] if troubles else ["none does"]),
        unjudged(f"{title}: it says", _plain(troubles[0]) if troubles else "nothing"),
    ]


def _clock_off(folder: Path, shift: float) -> list[Figure]:
    """Run one of two workers with a wrong clock."""
    title = f"one worker's clock {shift / _HOUR:+g} h"
    path = os.pathsep.join((str(BENCH / "clock_off"), environment()["PYTHONPATH"]))
    wrong = {"PYTHONPATH": path, "SHIFT_SECONDS": str(shift)}
    with (
        _limited(folder, f"nginx-clock{shift:+g}") as server,
        open_cluster(chunk_size=_CHUNK) as cluster,
    ):
        cluster.hire("right", 2)
        cluster.hire("wrong", 2, more=wrong)
        cluster.await_workers()
        time.sleep(_BURST / _RATE + 1)
        job = _submit(cluster, server, _PAGES // 2 - 1)
        cluster.judge.await_end(job, _PATIENCE)
        problems = cluster.judge.problems(job, _PAGES // 2 - 1)
        back = cluster.judge.number(
            "SELECT count(*) FROM events WHERE job_id = ? AND type = 'leases.reclaimed'", job
        )
        moments = cluster.judge.query(
            "SELECT min(finished_at), max(finished_at) FROM items WHERE job_id = ?", job
        )[0]
        arrivals = server.arrivals()
        off = [moment for moment in moments if moment and abs(moment - time.time()) > _HOUR / 2]
    return [
        none(f"{title}: responses with 429", sum(one.status == _TOO_MANY for one in arrivals)),
        nothing_wrong(
            f"{title}: {_PAGES // 2 - 1} items stored exactly once, and one end", problems
        ),
        none(f"{title}: times that leases were reclaimed", int(back)),
        none(f"{title}: wrong times in the database", len(off)),
    ]


# ---------------------------------------------------------------- a full disk


def _full_disk(folder: Path) -> list[Figure]:
    """Fill the disk of a SQLite home during a run, and free it again."""
    title = "full disk"
    count = _PAGES - 1
    with (
        _small_disk(folder / "disk") as disk,
        serving(folder / "site", folder / "nginx-disk") as server,
        open_cluster(has_postgres=False) as other,
    ):
        if disk is None:
            return [unjudged(title, "skipped: no permission to mount a small disk")]
        (disk / "home").mkdir()
        cluster = Cluster(disk, other.redis, None)
        try:
            cluster.judge.prepare(cluster.orchestrator)
            cluster.hire("one", 2)
            cluster.await_workers()
            job = cluster.submit(
                "page_source:Pages",
                {"base_url": server.url, "count": count},
                rate=10,
                burst=1,
                concurrency=4,
            )
            _await_stored(cluster, job, 20)
            _fill(disk / "ballast")
            said = _await_words(cluster.workers["one"], "no disk space", _SOON)
            time.sleep(2)
            (disk / "ballast").unlink()
            made_at = time.monotonic()
            standing = cluster.judge.await_end(job, 120)
            seconds = time.monotonic() - made_at
            problems = cluster.judge.problems(job, count)
        finally:
            cluster.end_workers()
            cluster.judge.close()
    return [
        nothing_wrong(f"{title}: a worker reports it", [] if said else ["it does not"]),
        unjudged(f"{title}: it says", said or "nothing"),
        unjudged(
            f"{title}: the job once there is space again", f"{standing.state}, {seconds:.1f} s"
        ),
        nothing_wrong(f"{title}: {count} items stored exactly once, and one end", problems),
    ]


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[Path | None]:
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={_DISK},mode=755", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(words, check=False, capture_output=True).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def _fill(file: Path) -> None:
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as ballast:
        while ballast.write(bytes(4096)):
            pass


# ---------------------------------------------------------------- shared steps


def _limited(folder: Path, name: str) -> contextlib.AbstractContextManager[Server]:
    return serving(folder / "site", folder / name, limit=Limit(_RATE, _BURST - 1), has_log=True)


def _submit(cluster: Cluster, server: Server, count: int) -> str:
    wanted: Mapping[str, object] = {"base_url": server.url, "count": count}
    return cluster.submit("page_source:Pages", wanted, rate=_RATE, burst=_BURST, concurrency=8)


def _await_stored(cluster: Cluster, job: str, count: int) -> None:
    until = time.monotonic() + _PATIENCE
    while cluster.judge.standing(job).stored < count:
        if time.monotonic() > until:
            message = f"{count} items were not stored in {_PATIENCE:g} s"
            raise TimeoutError(message)
        time.sleep(0.1)


def _await_words(child: Child, words: str, seconds: float) -> str:
    """Return the first line of a process with these words; empty if there is none in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for line in child.errors().splitlines():
            if words in line:
                return _plain(line)
        time.sleep(0.1)
    return ""


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return _plain(lines[-1]) if lines else ""


def _plain(line: str) -> str:
    """Return a line for a document, without times, ports, paths and table bars."""
    line = re.sub(r"/[\w./-]*longline-\w+[\w./-]*", "…", _TIME.sub("", line))
    line = re.sub(r"sqlite:///\S+/", "sqlite:///…/", line)
    return re.sub(r"127\.0\.0\.1('?[:,] ?)\d+", r"127.0.0.1\1…", line).replace("|", "/")
