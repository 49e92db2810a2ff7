"""Invocations of every command with valid, odd and hostile arguments, in sound and broken homes.

The command tree of click says what a command takes; seeds say what it is given. A case is made of
its number and the seed alone, so `bench/fuzz.py --seed S --only N` repeats one.
"""

from __future__ import annotations

import json
import random
import shlex
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import click

from tests.command_tree import commands
from tests.fork_server import ForkServer, Invocation, Result
from tests.hostile_data import ATTACK, World, env_of

CODES = frozenset({0, 1, 2, 3, 4, 130})
TIMEOUT = 60.0
_FORBIDDEN = (b"Traceback (most recent", b"internal error", b"Exception ignored", b"Fatal Python")
_HUGE = "x" * 100_000
_TEXTS = [
    *("", " ", "-", "--", "0", "-1", "a", "title", "price>1", "price", "evil", "goods", "thing"),
    *("worth", "*", "%", "_", "'", '"', "\\", "/", "..", "../../etc/passwd", "~", "~nobody/x"),
    *("a=b", "=", "a=", "price=", "price<<1", "price>nan", "{}", "[]", "null", "true", "1e400"),
    *("env:NOPE", "file:/nope", "keyring:a/b", "env:", "2d", "-5d", "99999999999d", "2026-13-45"),
    *("2026-11-01", "0001-01-01", "9999-12-31T23:59:59Z", "10000-01-01", "now", "latest"),
    *("127.0.0.1", "localhost:99999", "[::1", "a" * 300, "ü", "𝕏", "\u200d", "a\nb", "a\tb"),
    *(ATTACK, "\udcff\udcfe", _HUGE, "$(id)", "'; DROP TABLE jobs; --", "<script>", "%s%n", "\x01"),
]
_NUMBERS = [
    *("0", "1", "2", "3", "10", "-1", "1.5", "1e3", "1e400", "nan", "inf", "-inf", "x", "", "٣"),
    *(str(2**31), str(2**63 - 1), str(2**63), str(2**64), "9" * 400, "0x10", "1_000", " 5 "),
]
_RATES = ["auto", "unlimited", "50", "1000", "0", "-1", "nan", "inf", "x", "", "1e308"]
_ADDRESSES = [
    *("http://127.0.0.1:9/", "http://[::1", "http://", "http:///x", "ftp://127.0.0.1/x", "x"),
    *("http://evil.test/", "http://127.0.0.1:99999/", "http://user:pass@127.0.0.1:9/", "file:///"),
    *("https://xn--/", "http://ü.test/", "//127.0.0.1", "javascript:alert(1)", "http://a b/"),
    *("sqlite:///x.sqlite", "sqlite://", "sqlite:///", "redis://127.0.0.1:9", "s3://b/x.csv"),
    *("postgresql://u:p@127.0.0.1:9/x", "mysql://x", "://", "a://b:c/d"),
]
_FILES = {
    "broken.yaml": "manifest: html\nname: [unclosed\n",
    "empty.yaml": "",
    "list.yaml": "- 1\n- 2\n",
    "deep.yaml": "a: " + "[" * 500 + "]" * 500,
    "alias.yaml": "a: &a [*a]\n",
    "tag.yaml": "!!python/object/apply:os.system [id]\n",
    "job.yaml": "job: nightly\nsource: missing.yaml\nrate: fast\n",
    "manifest.yaml": "manifest: html\nname: x\nstart: 7\nitems: {elements: '::nope'}\nfields: 5\n",
    "syntax.py": "def broken(:\n",
    "raises.py": "raise RuntimeError('at import')\n",
    "exits.py": "import sys\nsys.exit(3)\n",
    "interrupts.py": "raise KeyboardInterrupt\n",
    "empty.py": "",
    "notes.txt": "text\n",
    "data.jsonl": '{"a": 1}\nnot json\n',
    "odd\nname.yaml": "manifest: html\n",
}
_BINARY = bytes(range(256)) * 40
_PROMPTS = {("shell",): ("-c", "1"), ("sources", "new"): ("--yes",)}
_SLOW = {"sandbox", "demo", "up", "worker", "top"}
_ENDLESS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("events", "follow"): ("--after", "-5"),
    ("events", "deliver"): ("--once",),
    ("serve",): ("--once",),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One invocation with the home it runs in."""

    number: int
    home: str
    call: Invocation

    def __str__(self) -> str:
        words = shlex.join(one if len(one) < 200 else f"{one[:20]}…" for one in self.call.words)
        how = f"{self.call.output}{', fresh' if self.call.is_fresh else ''}"
        return f"#{self.number} longline {words} [home: {self.home}; {how}]"


class Fuzzer:
    """Makes cases of a seed, runs them and says what is wrong with their results."""

    def __init__(self, seed: int, world: World, server: ForkServer) -> None:
        self._seed = seed
        self._world = world
        self._server = server
        self._commands = list(commands().items())
        for name, text in _FILES.items():
            (world.folder / name).write_text(text, "utf-8")
        (world.folder / "binary.bin").write_bytes(_BINARY)
        (world.folder / "folder").mkdir(exist_ok=True)
        self._texts = [*_TEXTS, *world.jobs.values(), *(one[:8] for one in world.jobs.values())]
        self._texts += [f"0{ATTACK}\nspoofed line", f"evil/0{ATTACK}\nspoofed line", "goods/b"]
        self._addresses = [*_ADDRESSES, world.url, f"{world.url}/list", f"{world.url}/gone"]
        self._paths = [*_FILES, "binary.bin", "folder", "missing.yaml", "missing/x.csv"]
        self._paths += ["evil.py", "goods.yaml", "listed.yaml", "task.yaml", "rules.yaml", "n8n"]
        self._paths += ["/dev/null", "/dev/full", "/proc/self/mem", "/", ".", "out.csv", "out.json"]
        self._paths += ["out.parquet", "out.xlsx", "out.sqlite", "out", "evil.py:Evil", "os:path"]

    def cases(self, count: int, start: int = 0) -> Iterator[Case]:
        """Yield so many cases; every command comes in turn."""
        for number in range(start, start + count):
            yield self._case(number)

    def run(self, case: Case) -> tuple[Result, list[str]]:
        """Run a case in a copy of its home; return its result and what is wrong with it."""
        place = self._world.folder / "used"
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        HOMES[case.home](self._world.home, place)
        result = self._server.invoke(case.call)
        return result, problems(case, result)

    def _case(self, number: int) -> Case:
        chance = random.Random(f"{self._seed}:{number}")
        path, command = self._commands[number % len(self._commands)]
        words = [*path, *self._arguments(command, path, chance)]
        home = chance.choice(list(HOMES)) if chance.random() < 0.4 else "sound"
        output = chance.choices(
            ("pipe", "terminal", "full", "closed", "left"), (70, 14, 6, 4, 6), k=1
        )[0]
        env = env_of(self._world.folder, LONGLINE_HOME=str(self._world.folder / "used"))
        if chance.random() < 0.05:
            name = chance.choice(["DATABASE_URL", "RATE", "TIMEOUT", "CONCURRENCY", "PROFILE"])
            env[f"LONGLINE_{name}"] = chance.choice([*self._texts[:40], *_ADDRESSES])
            env = {key: value.replace("\0", "") for key, value in env.items()}
        call = Invocation(
            tuple(word.replace("\0", "") for word in words),
            env=env,
            cwd=str(self._world.folder),
            stdin=chance.choice([None, None, "", "y\n" * 50, "\udcff\n", "1 + 1\n"]),
            output=output,
            timeout=TIMEOUT,
        )
        if chance.random() < 0.04 and path[0] not in _SLOW and "n8n" not in words:
            memory = chance.choice([None, None, 90, 150, 250, 400])
            memory = memory and memory * 2**20
            call = replace(call, is_fresh=True, memory=memory)
        if output == "terminal" and path in _PROMPTS:
            call = replace(call, words=(*call.words, *_PROMPTS[path]))
        call = replace(call, words=(*call.words, *_ENDLESS.get(path, ())))
        if path[0] in _SLOW:
            call, home = self._bounded(path[0], call, home, chance)
        return Case(number, home, call)

    def _bounded(
        self, name: str, call: Invocation, home: str, chance: random.Random
    ) -> tuple[Invocation, str]:
        """Keep commands that start servers, or run until they are interrupted, within bounds."""
        words = call.words
        if name == "sandbox":
            return replace(call, words=(*words, "--port", "-5")), home
        if name == "up":
            return replace(call, words=(*words, "--workers", "-1")), home
        if name == "worker":
            return replace(call, words=(*words, "--processes", "0")), home
        if name == "demo":
            more = ("--items", str(chance.randrange(-1, 3)), "--faults", "0")
            return replace(call, words=(*words, *more)), home
        if call.output == "terminal":
            return replace(call, words=(*words, "--once")), home
        return call, home

    def _arguments(
        self, command: click.Command, path: tuple[str, ...], chance: random.Random
    ) -> list[str]:
        words: list[str] = []
        for one in command.params:
            if isinstance(one, click.Argument):
                words += self._values(one, path, chance)
            elif one.name != "home" and chance.random() < (0.02 if one.name == "profile" else 0.15):
                words += self._option(one, path, chance)
        roll = chance.random()
        if roll < 0.06:
            words.insert(chance.randrange(len(words) + 1), chance.choice(self._texts))
        elif roll < 0.09:
            words.insert(chance.randrange(len(words) + 1), "--nope")
        elif roll < 0.11 and words:
            words.pop(chance.randrange(len(words)))
        elif roll < 0.14:
            words += ["--home", chance.choice([*self._paths, *self._texts])]
        return words

    def _option(
        self, option: click.Parameter, path: tuple[str, ...], chance: random.Random
    ) -> list[str]:
        name = chance.choice([*option.opts, *option.secondary_opts])
        if getattr(option, "is_flag", False) or getattr(option, "count", False):
            return [name]
        value = self._value(option, path, chance)
        return (
            [f"{name}={value}"]
            if name.startswith("--") and chance.random() < 0.2
            else [
                name,
                value,
            ]
        )

    def _values(
        self, argument: click.Argument, path: tuple[str, ...], chance: random.Random
    ) -> list[str]:
        if argument.nargs == -1:
            return [self._value(argument, path, chance) for _ in range(chance.randrange(3))]
        if not argument.required and chance.random() < 0.5:
            return []
        return [self._value(argument, path, chance) for _ in range(argument.nargs)]

    def _value(self, option: click.Parameter, path: tuple[str, ...], chance: random.Random) -> str:
        """Return a value that suits, or one that does not."""
        if chance.random() < 0.06:
            return chance.choice(chance.choice([self._texts, _NUMBERS, self._addresses]))
        return chance.choice(self._suiting(option, path))

    def _suiting(self, option: click.Parameter, path: tuple[str, ...]) -> Sequence[str]:
        kind, name = option.type, (option.name or "").lower()
        jobs = [*self._world.jobs.values(), "latest", "evil"]
        by_name: dict[str, Sequence[str]] = {
            "job": jobs,
            "url": self._addresses,
            "target": self._addresses,
            "rate": _RATES,
            "key": [*[f"0{ATTACK}\nspoofed line", "b"] * 4, ATTACK, "goods/b", "evil/x"],
            "rules": [*["rules.yaml"] * 20, *self._paths],
            "task": [*["task.yaml", "worth"] * 10, *self._paths],
            "kind": ["thing", "html", "api", "x"],
            "where": ["price>1", "title~PWND", "price=2", "size!=3", "nested.x=1", "title?"],
            "columns": ["title,price", "key,source,url", "nested", ATTACK, "title"],
            "since": ["2d", "3h", "2026-11-01", "9999-12-31"],
            "as_of": ["2d", "0d", "2026-11-01", "2036-11-01"],
            "source": ["evil", "goods", "listed", "x"],
            "options": ["run=2", "is_broken=true", "x=1", "run=a"],
            "params": ["a=1", "b=x"],
            "key_field": ["title", "price"],
            "field": ["title", "price", "nested", "x"],
            "partition": ["price", "title", "size", "source"],
            "form": ["jsonl", "json", "csv", "parquet", "xlsx", "sqlite", "duckdb", "x"],
            "output": ["-", "out.csv", "out.jsonl.gz", "out.parquet", "out.xlsx", "out", "a/b.csv"],
            "order": ["price", "-price", "title", "x", "score"],
            "search": ["PWND", "%", "b"],
            "text": ["PWND", "%", "b"],
            "grade": ["Excellent", "Poor", "x"],
            "domain": ["127.0.0.1", "evil.test", ATTACK],
            "host": ["127.0.0.1", "evil.test", ATTACK],
            "other": ["goods/b", f"evil/1{ATTACK}\nspoofed line", "evil/x"],
            "code_text": ["page.status", "1/0", "print(page.text)", "exit(4)", "raise SystemExit"],
            "max_bytes": ["1", "50MB", "1 GB", "x"],
            "max_seconds": ["0.2", "1", "5"],
            "max_requests": ["1", "3"],
            "timeout": ["0.5", "5"],
            "every": ["0.2", "1"],
        }
        if isinstance(kind, click.Choice):
            return [str(one) for one in kind.choices]
        is_a_record = path[0] in {"records", "export", "drift"}
        if name in {"source", "sources"} and not is_a_record:
            return [*["evil.py", "goods.yaml", "listed.yaml"] * 10, *self._paths]
        if name in by_name:
            return by_name[name]
        if isinstance(kind, click.Path) or name in {"output", "files", "folder", "a", "b", "name"}:
            return self._paths
        if isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
            return [*["1", "2", "3", "50"] * 12, *_NUMBERS]
        return self._texts


def problems(case: Case, result: Result) -> list[str]:
    """Return what is wrong with a result; nothing when all is well."""
    found = []
    if result.is_hung:
        found.append(f"did not end within {case.call.timeout:g} s")
    elif result.code not in CODES:
        found.append(f"exit code {result.code}")
    said = result.out + result.err
    found += [f"{one.decode()!r} was printed" for one in _FORBIDDEN if one in said]
    can_speak = case.call.output in {"pipe", "terminal"} and not result.is_hung
    if result.code in {1, 2} and can_speak and not said.strip():
        found.append(f"exit code {result.code} without a word")
    return found


# ------------------------------------------------------------------------------ homes


def _sound(home: Path, place: Path) -> None:
    shutil.copytree(home, place)
    for events in place.rglob("*.sqlite-*"):
        events.unlink()


def _spoiled(name: str, spoil: Callable[[Path], object]) -> Callable[[Path, Path], None]:
    def make(home: Path, place: Path) -> None:
        _sound(home, place)
        spoil(place / name)

    return make


def _flip(seed: int) -> Callable[[Path], None]:
    def spoil(file: Path) -> None:
        content, chance = bytearray(file.read_bytes()), random.Random(seed)
        for _ in range(3 if seed % 2 else 300):
            content[chance.randrange(len(content))] = chance.randrange(256)
        file.write_bytes(content)

    return spoil


def _replaced_by_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _replaced_by_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("not a folder")


def _newer(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()


def _without_table(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TABLE items")
        connection.commit()


def _odd_values(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE jobs SET settings = '[1, 2'")
        connection.execute("UPDATE records SET data = 'nonsense'")
        connection.commit()


def _odd_checkpoints(folder: Path) -> None:
    for file in folder.rglob("*.json"):
        file.write_text(json.dumps({"checkpoint_id": 5, "job": None}))


HOMES: dict[str, Callable[[Path, Path], None]] = {
    "sound": _sound,
    "missing": lambda _home, _place: None,
    "empty": lambda _home, place: place.mkdir(),
    "a file": lambda _home, place: place.write_text("not a folder"),  # type: ignore[dict-item]  # what it returns is not used
    "a device": lambda _home, place: place.symlink_to("/dev/null"),
    "a loop": lambda _home, place: place.symlink_to(place),
    "database empty": _spoiled("longline.sqlite", lambda file: file.write_bytes(b"")),
    "database text": _spoiled("longline.sqlite", lambda file: file.write_bytes(b"x" * 5000)),
    "database cut": _spoiled(
        "longline.sqlite", lambda file: file.write_bytes(file.read_bytes()[:9000])
    ),
    **{f"database flipped {n}": _spoiled("longline.sqlite", _flip(n)) for n in range(6)},
    "database a folder": _spoiled("longline.sqlite", _replaced_by_folder),
    "database newer": _spoiled("longline.sqlite", _newer),
    "database without items": _spoiled("longline.sqlite", _without_table),
    "database odd": _spoiled("longline.sqlite", _odd_values),
    **{f"limits flipped {n}": _spoiled("pace.sqlite", _flip(n)) for n in range(3)},
    "limits a folder": _spoiled("pace.sqlite", _replaced_by_folder),
    **{f"cache flipped {n}": _spoiled("cache.sqlite", _flip(n)) for n in range(3)},
    "cache a folder": _spoiled("cache.sqlite", _replaced_by_folder),
    **{f"index flipped {n}": _spoiled("archive/index.sqlite", _flip(n)) for n in range(3)},
    "archive a file": _spoiled("archive", _replaced_by_file),
    "archive flipped": _spoiled(
        "archive", lambda folder: [_flip(2)(one) for one in folder.glob("*.warc.gz")]
    ),
    "checkpoints a file": _spoiled("checkpoints", _replaced_by_file),
    "checkpoints odd": _spoiled("checkpoints", _odd_checkpoints),
    "services broken": _spoiled("services.json", lambda file: file.write_text("{broken")),
    "services odd": _spoiled("services.json", lambda file: file.write_text('{"processes": 5}')),
    "services a folder": _spoiled("services.json", lambda file: file.mkdir()),
}
