"""Run a healthy site next to hostile ones in one process, and judge what happened."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from children import BENCH, LONGLINE, Child, Children, Ended, environment
from home import Home
from hostile_web import ITEMS, Behaviour, all_behaviours

HEALTHY_ITEMS = 160
BATCH = 8
LONGEST_RUN = 60.0
LONGEST_STOP = 5.0
LOWEST_RATE = 0.9
MOST_MEMORY_MB = 400.0
_RATE = 20.0
_TIMEOUT = 2.0
_MAX_SECONDS = 15.0
_PATIENCE = 100.0
_STATES = {"complete", "partial", "failed", "paused", "blocked"}
_ENDED = ("stored", "unchanged", "skipped", "failed", "quarantined")


@dataclass
class Verdict:
    """The result of one trial with some behaviours; it passes if `problems` is empty."""

    names: Sequence[str]
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    healthy_rate: float = 1.0
    peak_mb: float = 0.0
    stop_seconds: float = 0.0


class HostileTrials:
    """Trials against one running web; each has a new `home`."""

    def __init__(self, places: Mapping[str, str], folder: Path, seed: int = 1) -> None:
        self._places = places
        self._folder = folder
        self._random = random.Random(seed)
        self._count = 0
        self._alone = 0.0

    def measure_alone(self) -> float:
        """Return the duration of the healthy site without other sites."""
        home = self._new_home()
        with Children() as children:
            ended = children.start(self._command(home, ())).wait(_PATIENCE)
        self._alone = _sites(ended)["healthy"]["seconds"]
        return self._alone

    def judge(self, behaviours: Sequence[Behaviour]) -> Verdict:
        """Run behaviours next to the healthy site to the end, then again with an interrupt."""
        verdict = Verdict([one.name for one in behaviours])
        self._run_to_end(behaviours, verdict)
        self._interrupt(behaviours, verdict)
        return verdict

    def _run_to_end(self, behaviours: Sequence[Behaviour], verdict: Verdict) -> None:
        home = self._new_home()
        with Children() as children:
            child = children.start(self._command(home, behaviours))
            try:
                ended = child.wait(_PATIENCE)
            except TimeoutError:
                verdict.problems.append(f"still running after {_PATIENCE:g} s")
                return
        verdict.seconds = ended.seconds
        verdict.peak_mb = (ended.peak_bytes or 0) / 1e6
        if ended.seconds > LONGEST_RUN:
            verdict.problems.append(f"took {ended.seconds:.0f} s")
        if verdict.peak_mb > MOST_MEMORY_MB:
            verdict.problems.append(f"held {verdict.peak_mb:.0f} MB")
        verdict.problems += _said(ended)
        sites = _sites(ended)
        if not sites:
            verdict.problems.append(f"exit code {ended.code} without a report")
            return
        healthy = sites["healthy"]
        verdict.healthy_rate = self._alone / healthy["seconds"] if healthy["seconds"] else 0.0
        if verdict.healthy_rate < LOWEST_RATE:
            verdict.problems.append(f"the healthy site kept {verdict.healthy_rate:.2f} of its rate")
        if (healthy["state"], healthy["stored"]) != ("complete", HEALTHY_ITEMS):
            verdict.problems.append(f"the healthy site lost items: {_short(healthy)}")
        for one in behaviours:
            verdict.problems += _judged(one, sites.get(one.name, {}))
        bugs = Home(home).query("SELECT key, reason FROM failures WHERE kind = 'bug'")
        verdict.problems += [f"kind bug: {key} {str(reason)[:100]}" for key, reason in bugs[:3]]

    def _interrupt(self, behaviours: Sequence[Behaviour], verdict: Verdict) -> None:
        home = self._new_home()
        with Children() as children:
            child = children.start(self._command(home, behaviours))
            self._wait_for_start(child, home)
            time.sleep(self._random.uniform(0.0, 3.0))
            if not child.is_running:
                verdict.problems.append("ended before it could be interrupted")
                return
            began = time.monotonic()
            child.interrupt()
            try:
                ended = child.wait(30.0)
            except TimeoutError:
                verdict.problems.append("did not stop within 30 s of SIGINT")
                verdict.stop_seconds = 30.0
                return
        verdict.stop_seconds = time.monotonic() - began
        if verdict.stop_seconds > LONGEST_STOP:
            verdict.problems.append(f"stopped {verdict.stop_seconds:.1f} s after SIGINT")
        if ended.code != 130:  # noqa: PLR2004  # the documented code of an interrupted run
            verdict.problems.append(f"exit code {ended.code} after SIGINT")
        verdict.problems += _said(ended)

    def _wait_for_start(self, child: Child, home: Path) -> None:
        until = time.monotonic() + 20.0
        while child.is_running and time.monotonic() < until:
            if Home(home).query("SELECT 1 FROM items WHERE state = 'stored' LIMIT 1"):
                return
            time.sleep(0.05)

    def _command(self, home: Path, behaviours: Sequence[Behaviour]) -> list[str]:
        files = [self._write(home, "healthy", _manifest("item", HEALTHY_ITEMS, {}))]
        files += [
            self._write(home, one.name, _manifest(one.shape, ITEMS, one.manifest))
            for one in behaviours
        ]
        limits = [f"--rate={_RATE:g}", "--burst=5", f"--timeout={_TIMEOUT:g}"]
        return [
            LONGLINE,
            "run",
            *map(str, files),
            *limits,
            f"--max-seconds={_MAX_SECONDS:g}",
            f"--home={home}",
            "--json",
        ]

    def _write(self, home: Path, name: str, manifest: dict[str, Any]) -> Path:
        file = home.parent / f"{home.name}-sources" / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        text = json.dumps({**manifest, "name": name}).replace("{base}", self._places[name])
        file.write_text(text, "utf-8")  # JSON is YAML
        return file

    def _new_home(self) -> Path:
        self._count += 1
        return self._folder / f"home-{self._count}"


def _manifest(shape: str, count: int, more: Mapping[str, Any]) -> dict[str, Any]:
    fields = more.get("fields", {"title": "h2" if shape == "elements" else "h1"})
    html = {"manifest": "html", "fields": fields}
    if shape == "item":
        numbers = {"n": {"from": 1, "to": count}}
        return {**html, "start": {"url": "{base}/item/{n}", "each": numbers}}
    if shape == "list":
        return {**html, "start": "{base}/list", "items": "a.item", "pages": "a.next"}
    if shape == "elements":
        items = {"elements": ".el"}
        return {**html, "start": "{base}/list", "items": items, "key": {"css": "h2"}}
    if shape == "sitemap":
        return {**html, "start": "{base}/sitemap.xml", "items": {"sitemap": True}}
    things = {"path": "/things", "records": "items", "key": "id"}
    things["fields"] = {"id": "id", "name": "name"}  # type: ignore[assignment]  # nested on purpose
    if pages := more.get("pages"):
        things["pagination"] = pages
    return {"manifest": "api", "base_url": "{base}", "endpoints": {"things": things}}


def _judged(behaviour: Behaviour, site: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of the job of a hostile site."""
    name = behaviour.name
    if site.get("state") not in _STATES:
        yield f"{name} ended as {_short(site)}"
        return
    if "discovered" not in site:
        yield f"{name} did not run: {_short(site)}"
        return
    if site["state"] in {"complete", "partial", "failed"}:
        ended = sum(site[state] for state in _ENDED)
        if ended != site["discovered"]:
            yield f"{name}: counts do not add up: {_short(site)}"
    is_partly_honest = behaviour.shape == "item" and not name.startswith(("site-", "robots-"))
    if is_partly_honest and site["stored"] < ITEMS - 1:
        yield f"{name} lost honest pages: {_short(site)}"
    if site["state"] == "complete" and site["failed"] + site["quarantined"]:
        yield f"{name} is complete with failures: {_short(site)}"


def _said(ended: Ended) -> list[str]:
    text = ended.errors + ended.output
    if "Traceback" in text:
        return ["traceback: " + ended.errors.strip().splitlines()[-1][:200]]
    return []


def _sites(ended: Ended) -> dict[str, dict[str, Any]]:
    lines = ended.output.strip().splitlines()
    if not lines or not lines[-1].startswith("{"):
        return {}
    answer = json.loads(lines[-1])
    return {site["source"]: site for site in answer.get("sites", [answer])}


def _short(site: Mapping[str, Any]) -> str:
    wanted = ("state", "discovered", *_ENDED, "reason", "error")
    return ", ".join(f"{name} {str(site[name])[:120]}" for name in wanted if site.get(name))


@contextlib.contextmanager
def hostile_web() -> Iterator[dict[str, str]]:
    """Serve the healthy site and every behaviour from two processes; yield addresses by name."""
    command = [sys.executable, str(BENCH / "hostile_web.py")]
    servers = [
        subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True
        )
        for words in (command, [*command, "healthy"])
    ]
    try:
        places: dict[str, str] = {}
        for server in servers:
            assert server.stdout is not None  # noqa: S101  # a pipe was asked for
            places |= json.loads(server.stdout.readline())
        yield places
    finally:
        for server in servers:
            server.kill()
            server.wait()


def run_all(names: Sequence[str] = (), *, batch: int = BATCH, seed: int = 1) -> list[Verdict]:
    """Judge all behaviours in batches; members of a batch that fails are judged alone."""
    chosen = [one for one in all_behaviours() if not names or one.name in names]
    found: list[Verdict] = []
    with hostile_web() as places, tempfile.TemporaryDirectory() as folder:
        trials = HostileTrials(places, Path(folder), seed)
        click.echo(f"  healthy site alone: {trials.measure_alone():.2f} s")
        random.Random(seed).shuffle(chosen)
        for start in range(0, len(chosen), batch):
            some = chosen[start : start + batch]
            verdict = trials.judge(some)
            if not verdict.problems or len(some) == 1:
                found.append(_shown(verdict))
                continue
            click.echo(f"  again one by one: {'; '.join(verdict.problems)[:300]}")
            trials.measure_alone()
            found += [_shown(trials.judge([one])) for one in some]
    return found


def _shown(verdict: Verdict) -> Verdict:
    word = "FAILED" if verdict.problems else "passed"
    click.echo(
        f"  {word} {', '.join(verdict.names)}: {verdict.seconds:.1f} s, rate "
        f"{verdict.healthy_rate:.2f}, {verdict.peak_mb:.0f} MB, stop {verdict.stop_seconds:.1f} s"
    )
    for problem in verdict.problems:
        click.echo(f"    {problem}")
    return verdict


@click.command()
@click.argument("names", nargs=-1)
@click.option("--batch", type=click.IntRange(min=1), default=BATCH)
@click.option("--seed", type=int, default=1)
def main(names: tuple[str, ...], batch: int, seed: int) -> None:
    """Judge the behaviours NAMES, or all of them; exit with 1 when one failed."""
    failed = [one for one in run_all(names, batch=batch, seed=seed) if one.problems]
    click.echo(f"{len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
