"""Flows are performed in their order, retried, undone, and continued by another process."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import sys

import pytest
from aiohttp import web

from longline.core.model import JobState
from longline.scheduling.flow_steps import approval_text
from longline.storage.query import RecordQuery
from longline.storage.scheduling.flows import Approval, FlowNotChangeable, FlowState
from longline.storage.scheduling.launches import LaunchState
from tests.scheduling.flows import World, write
from tests.scripted_site import ScriptedSite

NOTE = (
    "import os, sys; open(sys.argv[1], 'a').write(os.environ['LONGLINE_IDEMPOTENCY_KEY'] + '\\n')"
)
"""A program that appends its idempotency key to a file."""


def note(file: str) -> str:
    """Return a command that appends a line to a file."""
    return f"command: [{sys.executable}, -c, {json.dumps(NOTE)}, {file}]"


SECRET = "whsec_" + "c2VjcmV0" * 4
SLOW = "import asyncio\nasync def look(given): await asyncio.sleep(3600)\n"
FAIL = f"command: [{sys.executable}, -c, 'raise SystemExit(3)']"


async def prices(world: World) -> list[int]:
    rows = await world.store.records.list(RecordQuery())
    return [row["data"]["price"] for row in rows if row["gone_at"] is None]


async def test_steps_run_in_their_order(world: World) -> None:
    run = await world.run(
        f"""
        flow: chain
        steps:
          - {{name: a, {note("a.txt")}}}
          - {{name: b, {note("a.txt")}}}
        """
    )

    assert (run.state, run.reason) == (FlowState.COMPLETE, None)
    assert world.lines("a.txt") == [f"{run.id}/a", f"{run.id}/b"]


async def test_a_source_is_run_checked_and_exported(world: World) -> None:
    run = await world.run(
        """
        flow: nightly
        params: {things: 4}
        steps:
          - {name: shop, run: {source: shop.py, set: {things: '{params.things}'}}}
          - name: look
            check:
              source: shop
              job: '{steps.shop.output.job}'
              records: {min: 4, max: 4}
              coverage: {price: 1.0}
              fresh: 1h
              items: {stored: {min: 4}, failed: {max: 0}}
              changes: {min: 1}
          - {name: publish, export: {to: out.jsonl, source: shop, where: [price=5]}}
        """,
        things=4,
    )

    assert run.state is FlowState.COMPLETE, run.reason
    assert len(world.lines("out.jsonl")) == 4
    assert (await world.output(run, "shop"))["stored"] == 4
    assert (await world.output(run, "publish"))["records"] == 4


async def test_a_check_that_is_not_met_fails(world: World) -> None:
    run = await world.run(
        """
        flow: nightly
        steps:
          - {name: shop, run: shop.py}
          - name: look
            check:
              source: shop
              job: '{steps.shop.output.job}'
              records: {max: 1}
              coverage: {nosuch: 0.5}
              items: {failed: {min: 1}}
              changes: {max: 0.5}
        """
    )

    reason = (await world.store.flows.steps(run.id))["look"].reason
    assert run.state is FlowState.FAILED
    assert reason is not None
    assert reason.count(";") == 3


@pytest.mark.parametrize(
    ("body", "state"),
    [
        ("return None", "complete"),
        ("return True", "complete"),
        ("return False", "failed"),
        ("return 'too few'", "failed"),
        ("raise ValueError('no')", "failed"),
    ],
)
async def test_a_python_function_checks(world: World, body: str, state: str) -> None:
    write(world.folder, "checks.py", f"def look(given):\n    {body}\n")

    run = await world.run("flow: one\nsteps: [{name: look, check: 'checks.py:look'}]\n")

    assert run.state == state


async def test_independent_steps_run_concurrently(world: World) -> None:
    # Each waits for the file of the other.
    text = "import pathlib, sys, time\npathlib.Path(sys.argv[1]).touch()\n"
    text += "while not pathlib.Path(sys.argv[2]).exists(): time.sleep(0.01)\n"
    write(world.folder, "meet.py", text)
    run = await world.run(
        f"""
        flow: pair
        steps:
          - {{name: a, command: [{sys.executable}, meet.py, a, b]}}
          - {{name: b, command: [{sys.executable}, meet.py, b, a], after: []}}
        """
    )

    assert run.state is FlowState.COMPLETE


async def test_after_a_failure_the_rest_is_not_started(world: World) -> None:
    run = await world.run(f"flow: x\nsteps: [{{name: a, {FAIL}}}, {{name: b, {note('b')}}}]\n")

    assert run.state is FlowState.FAILED
    assert await world.states(run) == {"a": "failed", "b": "skipped"}


async def test_with_continue_only_what_follows_is_skipped(world: World) -> None:
    run = await world.run(
        f"""
        flow: x
        on_failure: continue
        steps:
          - {{name: a, {FAIL}}}
          - {{name: b, {note("b")}}}
          - {{name: c, {note("c")}, after: []}}
          - {{name: d, {note("d")}, after: [b, c]}}
        """
    )

    assert run.state is FlowState.PARTIAL
    expected = {"a": "failed", "b": "skipped", "c": "complete", "d": "skipped"}
    assert await world.states(run) == expected


async def test_an_optional_step_may_fail(world: World) -> None:
    steps = f"[{{name: a, {FAIL}, optional: true}}, {{name: b, {note('b')}}}]"
    run = await world.run(f"flow: x\nsteps: {steps}\n")

    assert run.state is FlowState.PARTIAL
    assert await world.states(run) == {"a": "failed", "b": "complete"}


@pytest.mark.parametrize(("least", "state"), [(3, "complete"), (4, "skipped")])
async def test_a_condition_decides_by_what_came_before(
    world: World, least: int, state: str
) -> None:
    run = await world.run(
        f"""
        flow: x
        params: {{least: 3}}
        steps:
          - {{name: shop, run: shop.py}}
          - {{name: a, {note("a")}, when: 'steps.shop.output.stored >= params.least'}}
          - {{name: b, {note("b")}}}
        """,
        least=least,
    )

    assert run.state is FlowState.COMPLETE
    assert await world.states(run) == {"shop": "complete", "a": state, "b": "complete"}


async def test_a_failed_step_is_retried_with_the_same_key(world: World) -> None:
    text = f"{NOTE}\nsys.exit(len(open(sys.argv[1]).readlines()) < 3)"
    write(world.folder, "third.py", text)
    begun = world.clock.now()

    run = await world.run(
        f"""
        flow: x
        steps:
          - name: a
            command: [{sys.executable}, third.py, a.txt]
            retry: {{attempts: 3, base: 60}}
        """
    )

    assert run.state is FlowState.COMPLETE
    assert world.lines("a.txt") == [f"{run.id}/a"] * 3
    assert world.clock.now() - begun >= 180


async def test_a_step_that_takes_too_long_is_stopped(world: World) -> None:
    write(world.folder, "slow.py", SLOW)
    run = await world.run("flow: x\nsteps: [{name: a, check: 'slow.py:look', timeout: 30}]\n")

    assert run.state is FlowState.FAILED
    assert "30 s" in (run.reason or "")


async def test_a_run_waits_for_a_person(world: World) -> None:
    text = f"flow: x\nsteps: [{{name: ok, approve: Publish?}}, {{name: b, {note('b')}}}]\n"
    run = await world.run(text)
    await world.store.flows.approve(run.id, None, Approval(is_approved=True, by="me"), 0.0)
    ended = await world.perform(run)

    assert (run.state, ended.state) == (FlowState.WAITING, FlowState.COMPLETE)


async def test_a_rejected_run_is_undone(world: World) -> None:
    run = await world.run(
        f"""
        flow: x
        on_failure: compensate
        steps:
          - {{name: a, {note("a")}, undo: {{{note("a")}}}}}
          - {{name: ok, approve: Publish?}}
        """
    )
    await world.store.flows.approve(run.id, None, Approval(is_approved=False, by="me"), 0.0)
    ended = await world.perform(run)

    assert ended.state is FlowState.COMPENSATED
    assert "rejected by me" in (ended.reason or "")
    assert world.lines("a") == [f"{run.id}/a", f"{run.id}/a/undo"]


async def test_an_approval_that_comes_too_late_fails(world: World) -> None:
    run = await world.run("flow: x\nsteps: [{name: ok, approve: Publish?, timeout: 1h}]\n")
    async with world.runner() as runner:
        for _ in range(2):
            await runner.tick()
            await world.clock.sleep(3600)

    ended = await world.store.flows.get(run.id)
    assert (run.state, ended.state) == (FlowState.WAITING, FlowState.FAILED)


async def test_a_run_is_performed_again_when_its_approval_is_late(world: World) -> None:
    run = await world.run("flow: x\nsteps: [{name: ok, approve: Publish?, timeout: 1h}]\n")
    await world.clock.sleep(3601)

    ended = await world.perform(run)

    assert ended.state is FlowState.FAILED


async def test_a_person_is_asked_with_the_values_of_the_run(world: World) -> None:
    run = await world.run(
        """
        flow: x
        params: {region: eu}
        steps:
          - {name: ask, approve: 'Publish {params.region}?', after: []}
          - {name: all, each: {items: [7], step: {approve: 'Publish {item}?'}}, after: []}
        """
    )
    (inner,) = await world.store.flows.list(flow="x.all")

    asked = approval_text(run, await world.store.flows.steps(run.id), "ask")
    asked_inside = approval_text(inner, await world.store.flows.steps(inner.id), "approve")
    assert (asked, asked_inside) == ("Publish eu?", "Publish 7?")


@pytest.mark.parametrize("undo", ["command: [no-such-program]", "webhook: nosuch"])
async def test_a_step_whose_undo_cannot_work_is_not_performed(world: World, undo: str) -> None:
    run = await world.run(f"flow: x\nsteps: [{{name: a, {note('a')}, undo: {{{undo}}}}}]\n")

    assert (run.state, world.lines("a")) == (FlowState.FAILED, [])


async def test_records_and_exports_are_restored_in_reverse_order(world: World) -> None:
    text = """
        flow: nightly
        params: {price: 5}
        on_failure: compensate
        steps:
          - {name: shop, run: {source: shop.py, set: {price: '{params.price}'}}, undo: restore}
          - {name: publish, export: {to: out.jsonl, source: shop}, undo: restore}
          - {name: fresh, export: {to: '{run}.csv', source: shop}, undo: delete}
          - {name: look, check: 'checks.py:look'}
        """
    write(world.folder, "checks.py", "def look(given): return given['params']['price'] == 5\n")
    first = await world.run(text)
    before = world.lines("out.jsonl")
    files = sorted(one.name for one in world.folder.iterdir())

    second = await world.run(text, price=6)

    assert (first.state, second.state) == (FlowState.COMPLETE, FlowState.COMPENSATED)
    assert world.lines("out.jsonl") == before
    assert sorted(one.name for one in world.folder.iterdir()) == files
    assert await prices(world) == [5, 5, 5]
    versions = await world.store.history.versions("0")
    assert [one.data["price"] for one in versions] == [5, 6, 5]


async def test_after_the_pivot_nothing_is_undone(world: World) -> None:
    run = await world.run(
        f"""
        flow: x
        on_failure: compensate
        steps:
          - {{name: a, {note("a")}, undo: {{{note("a")}}}}}
          - {{name: point, {note("a")}, pivot: true}}
          - {{name: b, {FAIL}}}
        """
    )

    assert run.state is FlowState.NEEDS_ATTENTION
    assert len(world.lines("a")) == 2


async def test_what_cannot_be_undone_needs_attention(world: World) -> None:
    flow = world.load(
        f"""
        flow: x
        on_failure: compensate
        undo_retry: {{attempts: 3, base: 10}}
        steps:
          - {{name: a, {note("a")}, undo: {{{note("undone")}}}}}
          - {{name: b, {note("b")}, undo: {{{FAIL}}}}}
          - {{name: c, {FAIL}}}
        """
    )
    run = await world.run(flow)

    steps = await world.store.flows.steps(run.id)
    assert run.state is FlowState.NEEDS_ATTENTION
    assert await world.states(run) == {"a": "undone", "b": "failed", "c": "failed"}
    assert (steps["b"].undo_attempt, world.lines("undone")) == (3, [f"{run.id}/a/undo"])


async def test_a_complete_run_can_be_undone_until_the_next_is_complete(world: World) -> None:
    text = """
        flow: x
        steps:
          - {name: shop, run: shop.py}
          - {name: publish, export: {to: out.jsonl, source: shop}, undo: restore}
        """
    write(world.folder, "out.jsonl", "before\n")
    first, second = await world.run(text), await world.run(text)
    kept = [one.name for one in world.folder.iterdir() if one.name.endswith(".previous")]
    await world.store.flows.undo(second.id, world.clock.now())
    undone = await world.perform(second)

    assert len(kept) == 2  # that of the second run: the records and their schema
    assert undone.state is FlowState.COMPENSATED
    with pytest.raises(FlowNotChangeable):
        await world.store.flows.undo(first.id, world.clock.now())


async def test_a_cancelled_run_stops(world: World) -> None:
    write(world.folder, "slow.py", SLOW)
    run = await world.start(
        f"flow: x\nsteps: [{{name: a, check: 'slow.py:look'}}, {{name: b, {note('b')}}}]\n"
    )
    async with world.runner() as runner:
        await runner.tick()
        await world.clock.sleep(5)
        await world.store.flows.cancel(run.id, "not today", world.clock.now())
        await world.clock.sleep(5)

    ended = await world.store.flows.get(run.id)
    assert (ended.state, ended.reason) == (FlowState.FAILED, "not today; a: not today")
    assert await world.states(run) == {"a": "failed", "b": "skipped"}


async def test_a_retry_continues_after_what_is_complete(world: World) -> None:
    write(world.folder, "b.py", "import pathlib; pathlib.Path('ready').read_text()")
    run = await world.run(
        f"""
        flow: x
        steps:
          - {{name: a, {note("a")}}}
          - {{name: b, command: [{sys.executable}, b.py]}}
        """
    )
    write(world.folder, "ready", "yes")
    await world.store.flows.retry(run.id, world.clock.now())
    ended = await world.perform(run)

    assert (run.state, ended.state) == (FlowState.FAILED, FlowState.COMPLETE)
    assert world.lines("a") == [f"{run.id}/a"]


async def test_a_sub_flow_is_part_of_its_flow(world: World) -> None:
    step = note("'{params.file}'")
    inner = f"flow: inner\nparams: {{file: ''}}\nsteps: [{{name: a, {step}}}]\n"
    write(world.folder, "inner.yaml", inner)
    run = await world.run(
        "flow: outer\nsteps: [{name: sub, flow: {file: inner.yaml, params: {file: x}}}]\n"
    )

    output = await world.output(run, "sub")
    assert run.state is FlowState.COMPLETE, run.reason
    assert world.lines("x") == [f"{output['run']}/a"]


async def test_an_approval_inside_a_sub_flow_lets_all_wait(world: World) -> None:
    write(world.folder, "inner.yaml", "flow: inner\nsteps: [{name: ok, approve: 'Yes?'}]\n")
    run = await world.run(
        f"flow: outer\nsteps: [{{name: sub, flow: inner.yaml}}, {{name: b, {note('b')}}}]\n"
    )
    (inner,) = await world.store.flows.list(flow="inner")
    await world.store.flows.approve(inner.id, None, Approval(is_approved=True, by="me"), 0.0)
    ended = await world.perform(run)

    assert (run.state, inner.state) == (FlowState.WAITING, FlowState.WAITING)
    assert ended.state is FlowState.COMPLETE, ended.reason


async def test_a_step_is_performed_for_each_item(world: World) -> None:
    run = await world.run(
        f"""
        flow: x
        params: {{word: hello}}
        steps:
          - {{name: shop, run: shop.py}}
          - name: all
            each:
              records: {{source: shop, where: [price=5]}}
              concurrency: 2
              step: {{{note("'{params.word}-{item.key}'")}}}
        """
    )

    assert run.state is FlowState.COMPLETE, run.reason
    assert [len(world.lines(f"hello-{key}")) for key in range(3)] == [1, 1, 1]


async def test_items_that_were_done_are_undone(world: World) -> None:
    run = await world.run(
        f"""
        flow: x
        on_failure: compensate
        steps:
          - name: all
            each:
              items: [a, b]
              step: {{{note("'{item}'")}, undo: {{{note("'{item}'")}}}}}
          - {{name: bad, {FAIL}}}
        """
    )

    assert run.state is FlowState.COMPENSATED, run.reason
    assert [len(world.lines(name)) for name in "ab"] == [2, 2]
    assert await world.states(run) == {"all": "undone", "bad": "failed"}


async def test_sources_are_run_by_a_list(world: World) -> None:
    run = await world.run(
        """
        flow: x
        params: {files: [shop.py]}
        steps: [{name: all, each: {values: params.files, step: {run: '{item}'}}}]
        """
    )

    assert run.state is FlowState.COMPLETE, run.reason
    assert await prices(world) == [5, 5, 5]


async def test_another_process_continues_a_run(world: World) -> None:
    text = f"flow: x\nsteps: [{{name: a, {note('a')}}}, {{name: b, {note('b')}}}]\n"
    run = await world.start(text)
    await world.store.flows.lease("elsewhere", world.clock.now(), world.clock.now() + 20)
    begun = world.clock.now()

    ended = await world.perform(run)

    assert ended.state is FlowState.COMPLETE
    assert world.clock.now() - begun >= 20


async def test_a_runner_that_lost_its_lease_stops(world: World) -> None:
    write(world.folder, "slow.py", SLOW)
    run = await world.start("flow: x\nsteps: [{name: a, check: 'slow.py:look'}]\n")
    async with world.runner() as runner:
        await runner.tick()
        await world.clock.sleep(3)
        now = world.clock.now() + 100
        await world.store.flows.lease("elsewhere", now, now + 20)
        await world.clock.sleep(3)
        await runner.tick()
        await world.clock.sleep(1)
        left = runner.running

    found = await world.store.flows.get(run.id)
    assert (left, found.owner) == (0, "elsewhere")


async def test_launches_are_left_to_an_executor(world: World) -> None:
    run = await world.start("flow: x\nsteps: [{name: shop, run: shop.py}]\n")
    async with world.runner(run_launch=None) as runner:
        await runner.tick()
        await world.clock.sleep(3)
        (launch,) = await world.store.launches.list()
        now = world.clock.now()
        leased = await world.store.launches.lease_one(launch.id, "executor", now, now + 20)
        assert leased is not None
        await world.orchestrator.run_launch(leased)
        await world.clock.sleep(3)

    ended = await world.store.flows.get(run.id)
    assert launch.origin == f"flow/{run.id}/shop"
    assert ended.state is FlowState.COMPLETE


async def test_a_retried_step_is_launched_again(world: World) -> None:
    run = await world.start("flow: x\nsteps: [{name: shop, run: shop.py}]\n")
    launches = world.store.launches
    async with world.runner(run_launch=None) as runner:
        await runner.tick()
        await world.clock.sleep(3)
        (first,) = await launches.list(is_open=True)
        now = world.clock.now()
        await launches.lease_one(first.id, "executor", now, now + 20)
        await launches.finish(first.id, "executor", now, result="failed", reason="503")
        await world.clock.sleep(3)
        await world.store.flows.retry(run.id, world.clock.now())
        await runner.tick()
        await world.clock.sleep(3)
        (second,) = await launches.list(is_open=True)

    assert (second.name, second.origin) == (first.name, first.origin)


async def test_a_step_that_begins_anew_cancels_its_earlier_launch(world: World) -> None:
    run = await world.start("flow: x\nsteps: [{name: shop, run: shop.py}]\n")
    flows, launches = world.store.flows, world.store.launches
    async with world.runner(run_launch=None) as runner:
        await runner.tick()
        await world.clock.sleep(3)
    (first,) = await launches.list(is_open=True)
    await flows.upgrade(
        run.id, run.definition, "x", steps=["shop"], again=["shop"], at=world.clock.now()
    )
    async with world.runner(run_launch=None) as runner:
        await runner.tick()
        await world.clock.sleep(3)
        (second,) = await launches.list(is_open=True)

    ended = await launches.get(first.id)
    assert second.id != first.id
    assert ended is not None
    assert (ended.state, ended.result) == (LaunchState.ENDED, "cancelled")


async def test_a_launch_that_begins_while_its_run_is_cancelled_is_cancelled(world: World) -> None:
    run = await world.start("flow: x\nsteps: [{name: shop, run: shop.py}]\n")
    launches = world.store.launches
    async with world.runner(run_launch=None) as runner:
        await runner.tick()
        await world.clock.sleep(3)
        (launch,) = await launches.list()
        now = world.clock.now()
        leased = await launches.lease_one(launch.id, "executor", now, now + 20)
        await world.store.flows.cancel(run.id, "not today", now)
        await world.clock.sleep(3)
        assert leased is not None
        await world.orchestrator.run_launch(leased)

    (job,) = await world.store.jobs.list()
    ended = await launches.get(launch.id)
    assert job.state is JobState.CANCELLED
    assert ended is not None
    assert (ended.state, ended.result) == (LaunchState.ENDED, "cancelled")


async def test_many_runs_are_performed_together(world: World) -> None:
    flow = world.load(f"flow: x\nsteps: [{{name: a, {note('a')}}}]\n")
    runs = [await world.start(flow) for _ in range(10)]
    async with world.runner() as runner:
        async with asyncio.timeout(3600):
            while await world.store.flows.list(is_open=True):
                await runner.wait(await runner.tick() or 1.0)

    assert sorted(world.lines("a")) == sorted(f"{run.id}/a" for run in runs)


async def test_an_unusable_definition_harms_no_other_run(world: World) -> None:
    good = world.load(f"flow: x\nsteps: [{{name: a, {note('a')}}}]\n")
    bad = await world.start(good)
    await world.store.flows.upgrade(bad.id, {}, "x", steps=["a"], again=["a"], at=0.0)
    run = await world.run(good)

    ended = await world.store.flows.get(bad.id)
    assert (run.state, ended.state) == (FlowState.COMPLETE, FlowState.NEEDS_ATTENTION)


async def test_a_webhook_gets_a_signed_message_with_its_key(
    world: World, site: ScriptedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", SECRET)
    received: list[tuple[dict[str, str], bytes]] = []

    async def answer(request: web.Request) -> web.Response:
        received.append(({**request.headers}, await request.read()))
        return web.Response(status=500 if len(received) == 1 else 200)

    site.answers["/hook"] = answer
    run = await world.run(
        f"""
        flow: x.y
        steps:
          - name: tell
            webhook:
              url: {site.url}/hook
              secret: env:HOOK
              allow_private: true
              data: {{run: '{{run}}', list: [1]}}
            retry: {{attempts: 2}}
        """
    )

    assert run.state is FlowState.COMPLETE, run.reason
    (first, _), (second, body) = received
    key = f"{run.id}/tell".replace(".", "_")
    assert {first["webhook-id"], second["webhook-id"], second["idempotency-key"]} == {key}
    message = json.loads(body)
    assert message["data"] == {"run": run.id, "flow": "x.y", "step": "tell", "list": [1]}
    signed = f"{key}.{second['webhook-timestamp']}.".encode() + body
    digest = hmac.new(base64.b64decode(SECRET.removeprefix("whsec_")), signed, "sha256").digest()
    assert second["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


async def test_an_unknown_webhook_fails_its_step(world: World) -> None:
    run = await world.run("flow: x\nsteps: [{name: tell, webhook: nosuch}]\n")

    assert run.state is FlowState.FAILED


async def test_records_are_matched_and_enriched(world: World) -> None:
    fields = "{title: {weight: 9}, price: {weight: 1}, size: {weight: 1}}"
    rules = f"match: same\nsources: [shop]\nblock: [[title]]\ncompare: {fields}\nthreshold: 5\n"
    write(world.folder, "rules.yaml", rules)
    rates = "{field: price, assume: EUR, to: BGN, rates: {EUR: 1.95583}, date: 2026-01-01}"
    task = f"enrich: bgn\nsources: [shop]\nenricher: {{currency: {rates}}}\n"
    write(world.folder, "task.yaml", task)
    run = await world.run(
        """
        flow: x
        steps:
          - {name: shop, run: shop.py}
          - {name: match, match: rules.yaml}
          - {name: enrich, enrich: task.yaml, after: shop}
        """
    )

    assert run.state is FlowState.COMPLETE, run.reason
    assert (await world.output(run, "match"))["records"] == 3
    assert (await world.output(run, "enrich"))["state"] == "complete"
