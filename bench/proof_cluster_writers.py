"""The proof that ten workers may share one SQLite file."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from cluster_parts import open_cluster
from home import Home
from nginx import serving
from pages import write_pages
from proofs import Proof, Sizes, none, nothing_wrong, unjudged

NAME = "cluster-writers"
_PATIENCE = 900.0
_EXPECTED = re.compile(
    r"^\d\d:\d\d:\d\d .*(: starting \d+ process|has ended|finishing items in flight)"
)


def prove(sizes: Sizes) -> Proof:
    """Collect one job into a SQLite home with many workers."""
    count = sizes.cluster_items
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pages(folder / "site", count)
        with (
            serving(folder / "site", folder / "nginx") as server,
            open_cluster(has_postgres=False) as cluster,
        ):
            for number in range(sizes.cluster_writers):
                cluster.hire(f"w{number}", 1)
            cluster.await_workers()
            job = cluster.submit("page_source:Pages", {"base_url": server.url, "count": count})
            cluster.judge.await_end(job, _PATIENCE)
            problems = cluster.judge.problems(job, count)
            wrong = Home(cluster.home).problems(count)
            began, ended = cluster.judge.query(
                "SELECT started_at, finished_at FROM jobs WHERE id = ?", job
            )[0]
            owners = cluster.judge.query("SELECT DISTINCT owner FROM chunks WHERE job_id = ?", job)
            failures = int(
                cluster.judge.number("SELECT count(*) FROM failures WHERE job_id = ?", job)
            )
            back = int(
                cluster.judge.number(
                    "SELECT count(*) FROM events WHERE job_id = ? AND type = 'leases.reclaimed'",
                    job,
                )
            )
            ended_early = [one for one, child in cluster.workers.items() if not child.is_running]
            said = [line for text in cluster.logs().values() for line in text.splitlines()]
    complaints = [line for line in said if line.strip() and not _EXPECTED.match(line)]
    for line in complaints[:20]:
        print(line)
    processes = len({":".join(row[0].split(":")[:3]) for row in owners if row[0]})
    figures = [
        nothing_wrong(f"{count:,} items, each stored exactly once, and one end", problems),
        nothing_wrong("tables are consistent, and the file is intact", wrong),
        none("unexpected lines in the logs of workers", len(complaints)),
        none("workers that ended before they were stopped", len(ended_early)),
        none("attempts that failed", failures),
        none("leases that had to be reclaimed", back),
        unjudged("processes that took part", processes),
        unjudged("time of the job", f"{(ended or began) - began:.1f} s"),
    ]
    about = (
        f"{sizes.cluster_writers} workers of one process each, a SQLite file as the database and "
        f"Redis for messages, collect {count:,} pages without a limit."
    )
    return Proof(NAME, about, figures)
