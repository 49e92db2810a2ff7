"""Every command shows hostile data on a terminal, and none of it reaches the terminal as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.command_tree import commands
from tests.fork_server import ForkServer, Result
from tests.hostile_data import ATTACK, World, attacking_site, make_world

KEY = f"0{ATTACK}\nspoofed line"
OTHER = f"1{ATTACK}\nspoofed line"
BAD = f"3{ATTACK}\nspoofed line"
# What rich and terminals need: colours, cursor movements, an alternate screen, a hidden cursor.
OURS = re.compile(rb"\x1b\[(?:[0-9;]*m|\?25[lh]|\?1049[lh]|H|2K|[0-9]*A|\?2026[hl])")
UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\u2028\u2029"
    "\u200b\ufeff\u061c\U000e0000-\U000e007f]"
)

# By command: the words after it. {…} stands for what differs from run to run.
SAID: dict[str, tuple[str, ...]] = {
    "run": ("evil.py", "--fresh", "--set", "is_broken=true"),
    "resume": ("{evil}",),
    "failures": ("{evil}", "--attempts"),
    "retry": ("{evil}",),
    "pause": (ATTACK,),
    "cancel": (ATTACK,),
    "jobs": ("{evil}",),
    "checkpoints": (),
    "logs": ("{evil}",),
    "events list": ("--limit", "1000"),
    "events follow": ("--type", ATTACK),
    "events types": (ATTACK,),
    "events subscribers": (),
    "events replay": (ATTACK,),
    "events prune": ("--before", ATTACK),
    "events projections": (),
    "events rebuild": (ATTACK,),
    "events show": ("runs",),
    "events unsubscribe": (ATTACK,),
    "schedule list": (),
    "schedule show": (ATTACK,),
    "schedule add": (ATTACK, "--source", ATTACK, "--cron", ATTACK),
    "schedule remove": (ATTACK,),
    "watch": ("{url}/list", "--select", "body"),
    "schedule pause": (ATTACK, "--reason", ATTACK),
    "schedule resume": (ATTACK,),
    "schedule run": (ATTACK,),
    "schedule next": (ATTACK,),
    "schedule backfill": (ATTACK, "--from", ATTACK, "--to", ATTACK),
    "schedule history": (ATTACK,),
    "alerts list": ("--all",),
    "alerts show": (ATTACK,),
    "alerts test": (ATTACK,),
    "alerts deliveries": (ATTACK,),
    "alerts silence": ("--rule", ATTACK, "--subject", ATTACK, "--reason", ATTACK),
    "alerts silences": (),
    "alerts unsilence": (ATTACK,),
    "alerts rules": (),
    "health": (),
    "metrics": (),
    "webhooks list": (),
    "webhooks add": (ATTACK, ATTACK, "--secret", ATTACK),
    "webhooks enable": (ATTACK,),
    "webhooks remove": (ATTACK,),
    "webhooks test": (ATTACK,),
    "webhooks deliveries": (ATTACK,),
    "webhooks redeliver": (ATTACK, "--event", "1"),
    "events deliver": ("--once",),
    "records list": (),
    "records search": ("PWND",),
    "records show": (KEY,),
    "records count": ("--where", f"{ATTACK}=1"),
    "records diff": (KEY,),
    "records history": (KEY, "title"),
    "records changes": ("evil",),
    "records quality": ("evil",),
    "records stats": ("evil",),
    "records versions": (KEY,),
    "quarantine list": (),
    "quarantine show": ("{goods}", ATTACK),
    "quarantine replay": ("{goods}", "--dry-run"),
    "duplicates find": ("rules.yaml",),
    "duplicates list": (),
    "duplicates show": ("thing", f"evil/{KEY}"),
    "duplicates confirm": ("thing", f"evil/{KEY}", f"evil/{OTHER}"),
    "duplicates reject": ("thing", f"evil/{KEY}", f"evil/{ATTACK}"),
    "enrich run": ("task.yaml",),
    "enrich retry": (ATTACK,),
    "enrich show": (f"evil/{KEY}",),
    "enrich status": (),
    "drift show": ("evil",),
    "drift accept": ("{evil}",),
    "export": ("-o", "-", "--format", "csv"),
    "report": ("{evil}",),
    "digest": ("--days", "7"),
    "reextract": ("{listed}",),
    "robots": ("{url}/closed" + ATTACK, "--fresh"),
    "limits": (),
    "limits pin": (ATTACK, "--rate", "1"),
    "limits forget": (ATTACK,),
    "breakers": (),
    "breakers show": (ATTACK,),
    "breakers reset": (ATTACK,),
    "proxies list": (),
    "proxies add": (ATTACK,),
    "proxies remove": (ATTACK,),
    "proxies check": (ATTACK,),
    "proxies refresh": (ATTACK,),
    "proxies stats": ("--domain", ATTACK),
    "cache stats": (),
    "cache clear": ("--host", ATTACK),
    "archive stats": (),
    "archive verify": (),
    "sources show": ("evil.py",),
    "sources check": ("listed.yaml",),
    "sources new": ("{url}/list", "--yes"),
    "sources test": (ATTACK,),
    "plan": ("listed.yaml",),
    "shell": ("{url}/page/1", "-c", "print(page.text)"),
    "config list": (),
    "config show": (ATTACK,),
    "sources status": ("evil",),
    "flow run": (ATTACK,),
    "flow list": (),
    "flow show": (ATTACK,),
    "flow resume": (ATTACK,),
    "flow retry": (ATTACK,),
    "flow undo": (ATTACK,),
    "flow approve": (ATTACK,),
    "flow cancel": (ATTACK,),
    "flow graph": (ATTACK,),
    "config validate": (ATTACK,),
    "config diff": (ATTACK, "goods.yaml"),
    "config set": (ATTACK, "rate", "1"),
    "config schema": (),
    "plugins": (),
    "worker": ("--name", ATTACK),
    "serve": (ATTACK,),
    "mcp": (ATTACK,),
    "tokens add": (ATTACK,),
    "tokens list": (),
    "tokens revoke": (ATTACK,),
    "tokens link": (),
    "launches list": ("--origin", ATTACK),
    "launches show": (ATTACK,),
    "launches cancel": (ATTACK,),
    "top": ("--once",),
    "up": ("--workers", ATTACK),
    "down": (),
    "status": (),
    "doctor": (),
    "db info": (),
    "db copy": (f"sqlite:///{ATTACK}/x",),
    "sandbox": ("--host", ATTACK),
    "demo": ("--items", ATTACK),
}
# These show what a site wrote, so the attack must be seen in them, and defused.
SHOWS = {
    *("run", "failures", "records list", "records search", "records show"),
    *("records diff", "records history", "records changes", "quarantine list"),
    *("quarantine show", "duplicates list", "duplicates show", "enrich show", "export"),
    *("robots", "sources check", "sources new", "shell", "events list", "logs"),
}


@dataclass(frozen=True)
class Stage:
    server: ForkServer
    world: World

    def __call__(self, *words: str, **how: object) -> Result:
        filled = [re.sub(r"\{(\w+)\}", lambda found: self._names[found[1]], word) for word in words]
        folder = str(self.world.folder)
        return self.server.run(*filled, env=self.world.env(), cwd=folder, **how)

    @property
    def _names(self) -> dict[str, str]:
        return {**self.world.jobs, "url": self.world.url}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with ForkServer() as server, attacking_site() as url:
        yield Stage(server, make_world(tmp_path_factory.mktemp("hostile"), url, server))


def unsafe(shown: bytes) -> list[str]:
    """Return what a terminal would obey, without what rich writes itself."""
    return UNSAFE.findall(OURS.sub(b"", shown).replace(b"\r\n", b"\n").decode())


def test_every_command_is_tried() -> None:
    assert set(SAID) == {" ".join(path) for path in commands()}


@pytest.mark.parametrize("name", SAID)
def test_nothing_hostile_reaches_the_terminal(stage: Stage, name: str) -> None:
    answer = stage(*name.split(), *SAID[name], output="terminal")

    assert unsafe(answer.out) == []
    assert b"\x1b[38;5;201m" not in answer.out
    assert b"Traceback" not in answer.out
    assert not answer.is_hung
    assert answer.code in {0, 1, 2, 3, 4}
    assert name not in SHOWS or b"PWND" in answer.out


@pytest.mark.parametrize("name", SAID)
def test_json_is_safe_on_the_terminal(stage: Stage, name: str) -> None:
    words = [*name.split(), *SAID[name]]
    has_json = any("--json" in one.opts for one in commands()[tuple(name.split())].params)
    more = ["--json"] if has_json and name != "export" else []

    answer = stage(*words, *more, output="terminal")

    assert unsafe(answer.out) == []
    assert b"Traceback" not in answer.out


def test_lines_cannot_be_forged(stage: Stage) -> None:
    for words in (("records", "show", KEY), ("failures", "{evil}"), ("logs",)):
        lines = stage(*words, output="terminal").out.splitlines()

        assert not [line for line in lines if line.startswith(b"spoofed")]


def test_a_live_display_is_safe(stage: Stage) -> None:
    answer = stage("top", output="terminal", interrupt_at=" UTC")

    assert (answer.code, unsafe(answer.out.replace(b"^C", b""))) == (0, [])


def test_an_export_for_a_program_is_not_changed(stage: Stage) -> None:
    answer = stage("export", "-o", "-", "--format", "csv", "--source", "evil")

    assert "\x1b]0;title\x07" in answer.out.decode()
