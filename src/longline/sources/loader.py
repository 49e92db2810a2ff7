"""Find, read and load sources: by name, file, module, function or spider."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import itertools
import pkgutil
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from longline.config.documents import Check, Document, check, read_document
from longline.config.job_spec import JobFile, JobSpec, make_spec, read_spec
from longline.config.plugins import LISTENERS, MIDDLEWARES, SOURCES, load_plugin, plugin_names
from longline.config.secrets import SecretRef, is_reference
from longline.config.settings import Explained, Settings, file_model
from longline.config.validation import nearest
from longline.config.yaml_tree import Location, format_location
from longline.core.errors import (
    BadFile,
    BadOption,
    BadSource,
    ConfigError,
    MissingExtra,
    NotFoundError,
    UnknownSecret,
)
from longline.core.json import diff_json
from longline.core.model import Listener
from longline.core.redaction import redact_url
from longline.http.browser.manifest import check_browser
from longline.http.messages import MiddlewareFactory
from longline.sources.base import Source
from longline.sources.manifest import (
    KIND,
    KINDS,
    Manifest,
    absolute_path,
    make_manifest,
    manifest_model,
    parse_manifest,
    resolve_files,
)

SUFFIXES = (".yaml", ".yml")
BUILT_IN = {
    "n8n": "longline.sources.n8n.source:N8n",
}
# By kind of manifest; each module is imported only when it is used.
_FACTORIES = {
    "html": "longline.sources.html.source:html_source",
    "api": "longline.sources.api.source:api_source",
    "command": "longline.sources.command:command_source",
}
SCHEMA_NAMES = (*KINDS, "job", "settings")
_VERSION = "__longline_version__"  # modification time and size of an executed file
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_MERGED = ("set", "params", "headers", "budget", "budget_per_domain")  # others are replaced
_SHORT_FORM = {"type": ["string", "number", "boolean", "array"]}


class UnknownSource(NotFoundError):
    """No source has this name."""

    name: str
    known: tuple[str, ...]
    message = "no source is named {name!r}"
    hint = (
        "Known sources: {known}. A file (my_source.py, job.yaml) or package.module:Class works too."
    )


def load_source(reference: str, manifest: Mapping[str, Any] | None = None) -> type[Source]:
    """Return the class of a source; `manifest` are the values that a job stores of a manifest.

    Raises:
        UnknownSource: there is no source of that name.
        BadSource: the file or module has no usable source.
        BadFile: the manifest is invalid.
    """
    if manifest is None:
        _refuse_url(reference)
        if reference.endswith(SUFFIXES):
            manifest = _manifest_values(read_document(Path(reference)))["manifest"]
    if manifest is not None:
        make_source = pkgutil.resolve_name(_FACTORIES[manifest[KIND]])
        return cast("type[Source]", make_source(make_manifest(manifest)))
    target = BUILT_IN.get(reference, reference)
    place, colon, name = target.rpartition(":")
    if target.endswith(".py"):
        found: Any = _only_source(reference, load_python_file(Path(target)))
    elif colon:
        is_file = place.endswith(".py")
        module = load_python_file(Path(place)) if is_file else _import_module(reference, place)
        found = getattr(module, name, None)
        if found is None:
            raise BadSource(reference, f"there is no {name!r} in {place}")
    else:
        found = load_plugin(SOURCES, reference)
        if found is None:
            raise UnknownSource(reference, tuple(sorted([*BUILT_IN, *plugin_names(SOURCES)])))
    source = as_source(reference, found)
    for is_missing, part in (
        (not getattr(source, "name", ""), "name"),
        (not source.layers(), "@layer"),
        (source.discover is Source.discover, "discover()"),
    ):
        if is_missing:
            raise BadSource(reference, f"{source.__name__} has no {part}")
    return source


def as_source(reference: str, found: Any) -> type[Source]:
    """Return a source class, or the source of a spider or function; else raise BadSource."""
    if isinstance(found, type) and issubclass(found, Source):
        return found
    # A spider exists only if Scrapy is imported already.
    scrapy = sys.modules.get("scrapy")
    if scrapy is not None and isinstance(found, type) and issubclass(found, scrapy.Spider):
        from longline.sources.scrapy import scrapy_source  # noqa: PLC0415

        return scrapy_source(found)
    if callable(found) and not isinstance(found, type):
        from longline.sources.function import function_source  # noqa: PLC0415

        return function_source(found)
    problem = "it is neither a subclass of longline.Source, nor a function, nor a Scrapy spider"
    raise BadSource(reference, problem)


def _import_module(reference: str, name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:  # unlike `python -m`, a console script does not add it
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == "scrapy":
            raise MissingExtra("scrapy", reference) from error
        raise BadSource(reference, str(error)) from error
    except (Exception, SystemExit) as error:
        raise BadSource(reference, f"{type(error).__name__}: {error}") from error


def load_python_file(path: Path) -> ModuleType:
    """Return the module of a file; an unchanged file is executed once per process."""
    try:
        found = path.stat()
    except OSError as error:
        raise BadSource(str(path), "there is no such file") from error
    # The prefix keeps a file called json.py from replacing the library.
    folder = blake2b(str(path.resolve().parent).encode(), digest_size=4).hexdigest()
    name, version = f"longline_source_{folder}_{path.stem}", (found.st_mtime_ns, found.st_size)
    known = sys.modules.get(name)
    if known is not None and vars(known).get(_VERSION) == version:
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadSource(str(path), "it is not a Python module")
    module = importlib.util.module_from_spec(spec)
    setattr(module, _VERSION, version)
    sys.modules[spec.name] = module  # dataclasses and pydantic look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise BadSource(str(path), f"{type(error).__name__}: {error}") from error
    return module


def _only_source(reference: str, module: ModuleType) -> type[Source]:
    classes = [one for one in vars(module).values() if isinstance(one, type)]
    found = [
        one for one in classes if issubclass(one, Source) and one.__module__ == module.__name__
    ]
    if len(found) != 1:
        problem = (
            f"it defines {len(found)} subclasses of longline.Source instead of one; "
            f"name a source, a function or a spider in it: {reference}:NAME"
        )
        raise BadSource(reference, problem)
    return found[0]


def load_middlewares(source: type[Source]) -> tuple[MiddlewareFactory, ...]:
    """Return the middlewares of a source; raise BadSource if one does not exist."""
    return _load_named(source, MIDDLEWARES, source.middlewares)


def load_listeners(source: type[Source]) -> tuple[Listener, ...]:
    """Return the listeners of a source; raise BadSource if one does not exist."""
    return _load_named(source, LISTENERS, source.listeners)


def _load_named(source: type[Source], group: str, several: Iterable[Any]) -> tuple[Any, ...]:
    """Return functions, and plugins given by name."""
    loaded = []
    for one in several:
        found = load_plugin(group, one) if isinstance(one, str) else one
        if not callable(found):
            known = ", ".join(plugin_names(group)) or "none"
            raise BadSource(source.name, f"{group} has no plugin {one!r}; installed: {known}")
        loaded.append(found)
    return tuple(loaded)


def check_needs(source: type[Source], chromium: str | None = None) -> None:
    """Check that the transport of a source is available; `chromium` is the configured browser.

    Raises:
        MissingExtra: its package is not installed.
        NoBrowser: there is no browser.
    """
    if source.transport == "http":
        return
    if source.transport == "impersonate":
        if importlib.util.find_spec("curl_cffi") is None:
            raise MissingExtra("impersonate", f"the source {source.name}")
        return
    if importlib.util.find_spec("playwright") is None:
        raise MissingExtra("browser", f"the source {source.name}")
    check_browser(chromium)


@dataclass(frozen=True, slots=True)
class Entry:
    """A valid manifest or job file."""

    name: str
    kind: str
    """html, api, command, or job."""
    document: Document
    model: Manifest | JobSpec

    @property
    def values(self) -> dict[str, Any]:
        """The values of the file, as a new dict."""
        return self.document.values

    @property
    def about(self) -> str:
        """One sentence about what it is for."""
        if isinstance(self.model, JobSpec):
            return f"a job of {self.model.source}"
        return self.model.about


def read_entry(path: Path) -> Entry:
    """Read a manifest or job file; raise BadFile if it is invalid."""
    return parse_entry(read_document(path))


def parse_entry(document: Document) -> Entry:
    """Return the manifest or job in a document; raise BadFile if it is invalid."""
    if document.node((KIND,)) is not None:
        manifest = parse_manifest(document)
        return Entry(manifest.name, document.values[KIND], document, manifest)
    _check_is_job(document)
    check(document, JobFile)
    values = document.values
    values.pop("schedule", None)
    try:
        spec = make_spec(values)
    except BadOption as error:
        raise document.error(error.option.split("."), error.problem) from error
    return Entry(document.path.stem, "job", document, spec)


def _check_is_job(document: Document) -> None:
    names = document.values
    # A misspelled name is reported as such later.
    if "source" not in names and not any(nearest(name, ("source", KIND)) for name in names):
        problem = "it is neither a manifest (no `manifest:`) nor a job file (no `source:`)"
        raise document.error((), problem)


@dataclass(frozen=True, slots=True)
class Survey:
    """All manifests and job files: the valid ones by name, and the problems of the others."""

    entries: Mapping[str, Entry]
    problems: tuple[ConfigError, ...]


def survey(settings: Settings, read: Callable[[Path], Entry] = read_entry) -> Survey:
    """Read every manifest and job file of the source folders; `read` may cache them."""
    entries: dict[str, Entry] = {}
    problems: list[ConfigError] = []
    for path in yaml_files(settings.sources):
        try:
            entry = read(path)
            if entry.name in entries:
                first = entries[entry.name].document.path
                problem = f"{first} has the name {entry.name!r}, too; rename one of them"
                raise entry.document.error(("name",), problem)
        except BadFile as error:
            problems.append(error)
        else:
            entries[entry.name] = entry
    return Survey(entries, tuple(problems))


def find_entry(reference: str, settings: Settings) -> Entry:
    """Return a manifest or job file by its path or name; raise ConfigError if there is none."""
    if reference.endswith(SUFFIXES):
        return read_entry(Path(reference))
    found = survey(settings)
    if reference in found.entries:
        return found.entries[reference]
    for problem in found.problems:  # the file of this name may be broken
        if isinstance(problem, BadFile) and Path(problem.path).stem == reference:
            raise problem
    meant = nearest(reference, found.entries)
    hint = f"did you mean {meant!r}? " if meant else ""
    known = ", ".join(found.entries) or "none"
    raise BadOption("NAME", f"there is no {reference!r}; {hint}known names: {known}")


def nothing_in(folders: Sequence[Path]) -> str:
    """Return the sentence for source folders without any file."""
    named = ", ".join(str(one) if one.is_absolute() else f"./{one}" for one in folders)
    return f"no manifests or job files in the folder{'s' * (len(folders) > 1)} {named}"


def yaml_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the YAML files among paths and in folders, in order."""
    for path in paths:
        if not path.is_dir():
            yield from (path,) if path.suffix in SUFFIXES else ()
            continue
        # Files that start with . or # belong to editors.
        files = (one for one in path.iterdir() if not one.name.startswith((".", "#")))
        yield from sorted(one for one in files if one.suffix in SUFFIXES)


def explain_entry(entry: Entry) -> list[Explained]:
    """Return every value with its origin: a line of the file, or a default."""
    document = entry.document
    written = [
        Explained(format_location(loc), value, f"{document.path}:{document.place(loc)[0]}")
        for loc, value in leaves(entry.values)
    ]
    dump = entry.model.model_dump(mode="json", by_alias=True)
    names = (name for name in dump if document.node((name,)) is None and name != KIND)
    return [*written, *(Explained(name, dump[name], "default") for name in names)]


def leaves(value: Any, loc: Location = ()) -> Iterator[tuple[Location, Any]]:
    """Yield every scalar and empty container with its location."""
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from leaves(below, (*loc, str(name)))
    elif isinstance(value, list | tuple) and value:
        for number, below in enumerate(value):
            yield from leaves(below, (*loc, number))
    else:
        yield loc, value


def diff_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each value that differs: its path, before, after, and added, removed or changed."""
    return [
        {
            "path": format_location(one.path),
            "before": one.values.get("old"),
            "after": one.values.get("new"),
            "change": one.change,
        }
        for one in diff_json(before, after, by_leaf=True)
    ]


def secret_references(values: Mapping[str, Any]) -> Iterator[tuple[Location, SecretRef]]:
    """Yield every secret reference with its location, written as `env:NAME` or {env: NAME}."""
    texts = ((loc, value) for loc, value in leaves(values) if isinstance(value, str))
    for loc, text in texts:
        for place, written in ((loc, text), (loc[:-1], f"{loc[-1]}:{text}")):
            if is_reference(written):
                with suppress(ValueError, RuntimeError):  # it only looks like one
                    yield place, SecretRef.parse(written)


def check_secrets(entry: Entry) -> None:
    """Check that every secret that a file refers to can be read; raise BadFile otherwise."""
    for loc, reference in secret_references(entry.values):
        if loc[0] not in ("auth", "cookies"):
            continue
        try:
            reference.check()
        except (UnknownSecret, MissingExtra) as error:
            raise entry.document.error(loc, str(error)) from None


def _refuse_url(reference: str) -> None:
    """Raise BadSource for the URL of a site, which needs a manifest first."""
    if reference.startswith("www."):
        reference = f"https://{reference}"
    if _URL.match(reference):
        address = redact_url(reference)
        hint = f"propose a manifest with `longline sources new {shlex.quote(address)}`"
        raise BadSource(address, f"it is the address of a site; {hint}, then run that file")


def read_job_file(path: Path) -> dict[str, Any]:
    """Return the values of a job file or manifest, by the names of JobSpec.

    Paths are relative to the folder of the file.

    Raises:
        BadFile: the file is invalid.
    """
    document = read_document(path)
    if KIND in document.values:
        return _manifest_values(document)
    _check_is_job(document)
    values = dict(read_spec(path))
    if isinstance(values.get("ca_file"), str):
        values["ca_file"] = absolute_path(path.parent, values["ca_file"])
    source = values["source"]
    file, colon, name = source.partition(".py:")
    if source.endswith(SUFFIXES):
        values |= _manifest_values(read_document(_existing_file(source, document)))
    elif colon:
        values["source"] = f"{_existing_file(f'{file}.py', document)}:{name}"
    elif source.endswith(".py"):
        values["source"] = str(_existing_file(source, document))
    return values  # other sources are a name, or package.module:Class


def _manifest_values(document: Document) -> dict[str, Any]:
    parse_manifest(document)  # for errors with a position in the file
    path = document.path
    return {"source": str(path), "manifest": resolve_files(document.values, path.parent)}


def _existing_file(source: str, document: Document) -> Path:
    path = document.path.parent / Path(source).expanduser()
    if not path.is_file():
        problem = f"there is no file {path}; paths are relative to the folder of the job file"
        raise document.error(("source",), problem)
    return path


def merge_spec(base: JobSpec, source: str | None, params: Mapping[str, Any]) -> JobSpec:
    """Return the spec of a run: `base`, overridden by `source` and then by `params`.

    `source` is another source, a job file or a manifest; `params` has the names of JobSpec.

    Raises:
        ConfigError: a file is invalid, a name unknown, or a value does not fit.
    """
    values = base.stated()
    if source is not None and source != base.source:
        for name in ("set", "manifest"):  # those of another source do not apply
            values.pop(name, None)
    if source:
        _refuse_url(source)
        is_file = source.endswith(SUFFIXES)
        values.update(read_job_file(Path(source)) if is_file else {"source": source})
    for name, value in params.items():
        is_merged = name in _MERGED and isinstance(value, Mapping)
        values[name] = {**values.get(name, {}), **value} if is_merged else value
    if values.get("manifest") and values.get("params"):
        known = ", ".join(values["manifest"].get("parameters") or ()) or "none"
        problem = f"manifests do not use params; set their parameters with --set (known: {known})"
        raise BadOption(f"--param {next(iter(values['params']))}", problem)
    return make_spec(values)


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of manifest, of job files, or of the settings file."""
    if name == "settings":
        schema = _generate_schema(file_model(Settings))
    elif name == "job":
        schema = _generate_schema(JobFile)
        schema["properties"].pop(KIND, None)  # a job file names its manifest as its source
    else:
        schema = _generate_schema(manifest_model(name))
        schema["properties"] = {**schema["properties"], KIND: {"const": name}}
        schema["required"] = [KIND, *(one for one in schema.get("required", []) if one != KIND)]
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **schema, "title": f"longline {name}"}


def _generate_schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema(by_alias=True, schema_generator=_ShortFormSchema)


def attribute_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings below the fields of a model, by field.

    Reading them takes long, so pydantic's `use_attribute_docstrings` would make each start slow.
    """
    texts: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if not issubclass(kind, BaseModel) or kind is BaseModel:
            continue
        # A model that was made at run time has no source.
        with suppress(OSError, TypeError, SyntaxError):
            for field, text in itertools.pairwise(_statements_of(kind)):
                match field, text:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(doc))),
                    ) if name in model.model_fields:
                        texts[name] = inspect.cleandoc(doc)
    return texts


def _statements_of(kind: type) -> Sequence[ast.stmt]:
    """Return the statements in the body of a class."""
    source = inspect.getsource(kind)
    # Below an `if`, a class may be indented, even if not all lines in it are.
    tree = ast.parse(f"if True:\n{source}" if source[0].isspace() else source).body[0]
    (found,) = tree.body if isinstance(tree, ast.If) else (tree,)
    return cast("ast.ClassDef", found).body


class _ShortFormSchema(GenerateJsonSchema):
    """Describes fields, and accepts the short forms that validators expand, such as `title: h1`."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        full = super().model_schema(schema)
        model = schema["cls"]
        for field, text in attribute_docstrings(model).items():
            name = model.model_fields[field].alias or field
            if name in full.get("properties", {}):
                full["properties"][name].setdefault("description", text)
        return full

    def function_before_schema(
        self, schema: core_schema.BeforeValidatorFunctionSchema
    ) -> JsonSchemaValue:
        full = super().function_before_schema(schema)
        function = schema["function"]["function"]
        owner = getattr(function, "__self__", None)
        decorators = getattr(owner, "__pydantic_decorators__", None)
        is_of_model = decorators is not None and function.__name__ in decorators.model_validators
        if "json_schema_input_schema" in schema or is_of_model:
            return full
        # A method validates a whole field and may accept anything inside it.
        is_open = owner is not None or full.get("type") == "array"
        return {"anyOf": [full, {} if is_open else _SHORT_FORM]}


def known_sources(settings: Settings) -> Iterator[tuple[str, type[Source] | ConfigError]]:
    """Yield every source that has a name, and the problem of each that is broken."""
    found = survey(settings)
    manifests = [
        str(one.document.path) for one in found.entries.values() if isinstance(one.model, Manifest)
    ]
    for reference in (*sorted({*BUILT_IN, *plugin_names(SOURCES)}), *manifests):
        try:
            yield reference, load_source(reference)
        except ConfigError as error:
            yield reference, error
    for problem in found.problems:
        yield getattr(problem, "path", ""), problem


def validate_files(
    files: Sequence[Path],
    settings: Settings,
    *,
    with_secrets: bool = True,
    checks: Sequence[Check] = (),
) -> tuple[int, list[ConfigError]]:
    """Return the number of files, and the first problem of each invalid one.

    Without `files`, all manifests and job files of the settings are validated. `checks` are further
    ones, of packages that this one does not know.
    """
    paths = list(files or yaml_files(settings.sources))
    problems: list[ConfigError] = []
    for path in paths:
        try:
            entry = read_entry(path)
            values = read_job_file(path)
            for check_document in checks:
                check_document(entry.document)
            if isinstance(entry.model, JobSpec):
                _check_job_source(entry.document, values)
            if with_secrets:
                check_secrets(entry)
        except ConfigError as error:
            problems.append(error)
    if not files and not problems:  # two valid files may have the same name
        problems = list(survey(settings).problems)
    return len(paths), problems


def _check_job_source(document: Document, values: Mapping[str, Any]) -> None:
    place = "source"
    try:
        source = load_source(values["source"], values.get("manifest"))
        place = "set"
        source.with_options(values.get("set") or {})
    except BadFile:
        raise
    except ConfigError as error:
        raise document.error((place,), str(error)) from error
