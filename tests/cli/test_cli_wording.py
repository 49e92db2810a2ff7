# Pins wording on purpose.
"""Messages as users read them: one example of each kind, singular and plural."""

from __future__ import annotations

from pathlib import Path

from tests.cli.terminal import Terminal


def test_an_error_is_one_sentence_with_what_to_do(longline: Terminal) -> None:
    assert longline("jobs", "x").err == (
        "longline: there is no job 'x' in this home. `longline jobs` lists the jobs.\n"
    )


def test_a_misspelled_name_is_answered_with_the_nearest_one(
    longline: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "shop.yaml").write_text("source: n8n\n")

    assert longline("config", "show", "shopp").err == (
        "longline: NAME: there is no 'shopp'; did you mean 'shop'? known names: shop\n"
    )


def test_a_count_of_files_has_a_singular(longline: Terminal, tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("source: n8n\n")

    assert longline("config", "validate", "a.yaml").out == "1 file is valid\n"
    assert longline("config", "validate", "a.yaml", "b.yaml").out == "2 files are valid\n"


def test_an_export_is_summed_up_in_one_line(longline: Terminal, shop: Path) -> None:
    longline("run", shop)

    answer = longline("export", "-o", "a.csv")

    assert answer.out == "3 records written to a.csv (csv)\n"


def test_a_bad_value_is_shown_with_what_is_expected(longline: Terminal, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: 1\n")

    assert longline("run", "n8n", "--max-bytes", "lots").err == (
        "longline: --max-bytes: 'lots' is not a size; use for example 500KB or 50MB\n"
    )
    assert longline("jobs", "--limit", "-3").err.endswith("must be at least 1, not -3\n")
    assert longline("run", "x.yaml").err == (
        "longline: x.yaml:1:1: it is neither a manifest (no `manifest:`) nor a job file "
        "(no `source:`)\n"
    )


def test_a_page_that_cannot_be_fetched_now_is_not_called_deferred(longline: Terminal) -> None:
    assert longline("shell", "http://127.0.0.1:9/", "-c", "1").err.endswith("; try again later\n")


def test_values_are_printed_as_json(longline: Terminal, shop: Path) -> None:
    longline("run", shop)

    shown = longline("jobs", longline("jobs", "--json").last[0]["job"]).out

    assert "reason       null\n" in shown
    assert "None" not in shown
