"""Checks of what a user wrote: settings, variables, sources, and what those need."""

from __future__ import annotations

from collections.abc import Iterator

from longline.config.documents_words import nearest
from longline.config.layers import FILE_VARIABLE, PROFILE_VARIABLE
from longline.config.layers import settings_file as file_of_settings
from longline.config.library import survey
from longline.config.library_entries import check_secrets
from longline.config.settings import Settings
from longline.errors import BadFile, ConfigError
from longline.fetching.transports.browser_options import check_browser
from longline.lifecycle.doctor_base import Finding, Ground, ok, problem, warning

_PREFIX = "LONGLINE_"
_OTHERS = (  # variables that are not settings
    FILE_VARIABLE,
    PROFILE_VARIABLE,
    "LONGLINE_TRACEBACK",
    "LONGLINE_UP",
)


def settings_file(ground: Ground) -> Iterator[Finding]:
    """Say which file the settings stand in; that it is sound was seen when they were read."""
    del ground
    path = file_of_settings()
    told = "no settings file, all is as it comes" if path is None else f"{path} is sound"
    yield ok("settings", told)


def variables(ground: Ground) -> Iterator[Finding]:
    """See that every variable of ours means something."""
    known = [*(f"{_PREFIX}{name.upper()}" for name in Settings.model_fields), *_OTHERS]
    ours = sorted(name for name in ground.environment if name.upper().startswith(_PREFIX))
    unknown = [name for name in ours if name.upper() not in known]
    for name in unknown:
        meant = nearest(name.upper(), known)
        remedy = f"did you mean {meant}?" if meant else "`longline config` lists all settings"
        yield warning("variables", f"{name} is set, and is no setting", remedy)
    if not unknown:
        yield ok("variables", f"{', '.join(ours) or 'none'} of ours set")


def sources(ground: Ground) -> Iterator[Finding]:
    """See that every manifest and job file is sound."""
    found = survey(ground.settings)
    for error in found.problems:
        yield problem("sources", str(error), "mend the file; `longline config check` tells more")
    if not found.problems:
        yield ok("sources", f"{len(found.entries)} manifests and job files, all sound")


def secrets(ground: Ground) -> Iterator[Finding]:
    """See that every secret that is referred to is there."""
    entries = survey(ground.settings).entries
    missing = 0
    for entry in entries.values():
        try:
            check_secrets(entry)
        except BadFile as error:
            missing += 1
            yield problem("secrets", str(error), f"provide it, or {entry.name} cannot run")
    if not missing:
        yield ok("secrets", "all that is referred to is there")


def browser(ground: Ground) -> Iterator[Finding]:
    """See that there is a browser when a source needs one."""
    entries = survey(ground.settings).entries.values()
    wanting = [one.name for one in entries if getattr(one.model, "transport", "http") != "http"]
    if not wanting:
        yield ok("browser", "no source here needs one")
        return
    try:
        check_browser(ground.settings.chromium)
    except ConfigError as error:
        sentence = f"{', '.join(wanting)} need a browser: {error}"
        yield problem("browser", sentence, "install Chromium, or name one in LONGLINE_CHROMIUM")
    else:
        yield ok("browser", f"there is one for {', '.join(wanting)}")
