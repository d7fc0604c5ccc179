"""Discovery and loading of plugins (floor 10): one by one, in a fixed order, a broken one by its name and alone."""

import importlib
import inspect
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal, get_args

import attrs

from spine import late
from spine.codec import Codec
from spine.errors import DuplicateContribution, PluginFailed, SpineError, UsageError
from spine.events import EventType
from spine.frozen import frozen
from spine.functions import as_tool
from spine.hooks import Hooks, Implementation, marked, run_hook
from spine.llm.catalogue import Catalogue, Provider
from spine.scope import Disposer, Registries, Scope
from spine.sections import Section
from spine.tools import ApprovalPolicy

GROUP = "spine"
State = Literal["loaded", "blocked", "failed", "unloaded"]
_CONTRIBUTIONS = ("protocols", "adapters", "tools", "prompts", "policies", "counters", "events", "stores")


@frozen(kw_only=True)
class PluginInfo:
    """A line of the list of plugins. `import_s` in seconds; `error` says why it failed or who blocked it."""

    name: str
    version: str
    state: State
    import_s: float | None = None
    offers: tuple[str, ...] = ()
    error: str | None = None

    @property
    def full_name(self) -> str:
        """`name@version`, as contributions and events name their owner."""
        return f"{self.name}@{self.version}"


class Registrar:
    """What a plugin's contribution hooks receive; it remembers what was added, so that it can go again."""

    def __init__(self, kind: str, owner: str, plugins: "Plugins") -> None:
        self._kind = kind
        self._owner = owner
        self._plugins = plugins
        self.offers: list[str] = []

    def add(
        self, value: Any, *, name: str | None = None, provider: str | None = None, scope: Scope | None = None
    ) -> None:
        """Add one contribution, for one exact scope or globally.

        Protocols need their `name`; adapter factories `provider`; policies, counters and stores `name`. Raises
        `DuplicateContribution` when the name is taken in that layer.
        """
        where = _caller()
        with _named(self._owner, f"spine_register_{self._kind}", where):
            self._add(value, name or provider, scope, where)

    def _add(self, value: Any, name: str | None, scope: Scope | None, where: str) -> None:
        kind = self._kind
        if kind == "events":
            self._plugins.codec.add(_expect(value, kind), self._owner)
            self.offers.append(f"event {value.name}")
        elif isinstance(value, Provider):
            entry = attrs.evolve(value, source=self._owner)
            self._plugins.contribute("providers", entry, entry.id, self._owner, scope, where, self.offers)
        else:
            self._plugins.contribute(kind, value, name, self._owner, scope, where, self.offers)


@contextmanager
def _named(owner: str, hook: str, where: str) -> Iterator[None]:
    """What is refused inside says which plugin added it, in which hook and at which place."""
    try:
        yield
    except DuplicateContribution:  # names both owners and both places itself
        raise
    except UsageError as error:
        error.message = f'plugin "{owner}" in {hook}: {error.message}' + (f" ({where})" if where else "")
        error.args = (error.message,)
        raise


_WANTED: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "prompts": (lambda value: isinstance(value, Section), "Section"),
    "events": (lambda value: isinstance(value, EventType), "EventType"),
    "protocols": (lambda value: isinstance(getattr(value, "name", None), str), "WireProtocol or Provider"),
    "adapters": (callable, "a function that makes an adapter"),
    "policies": (lambda value: value in get_args(ApprovalPolicy) or callable(value), "never, ask, or a function"),
    "counters": (callable, "a function that counts tokens"),
    "stores": (callable, "a function that opens a store"),
}
"""What may be added of each kind, and the words for it; tools are checked by `as_tool`."""


def _expect(value: Any, kind: str) -> Any:
    fits, wanted = _WANTED.get(kind, (lambda value: True, ""))
    if not fits(value):
        raise UsageError(f"registrar of {kind} takes {wanted}, found {type(value).__name__}")
    return value


def _caller() -> str:
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame.f_back if frame is not None else None
    return "" if frame is None else f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


class Plugins:
    """Loads plugins into hooks and registries, and takes them out again."""

    def __init__(
        self,
        hooks: Hooks,
        registries: Registries,
        codec: Codec,
        catalogue: Catalogue,
        extend: Callable[[Catalogue], Catalogue] = lambda merged: merged,
    ) -> None:
        """`extend` adds what wins over the entries of catalogue and plugins: those of the configuration."""
        self.hooks = hooks
        self.registries = registries
        self.codec = codec
        self._catalogue = catalogue
        self._extend = extend
        self._merged: tuple[Any, Catalogue] | None = None
        self._infos: dict[str, PluginInfo] = {}
        self._closing: list[Implementation] = []
        """The `spine_close` of plugins that were unloaded, until nothing can hold them any more."""

    @property
    def infos(self) -> tuple[PluginInfo, ...]:
        """All plugins that were found, loaded or not, by name."""
        return tuple(self._infos[name] for name in sorted(self._infos))

    @property
    def versions(self) -> Mapping[str, str]:
        """Version of each loaded plugin."""
        return {info.name: info.version for info in self.infos if info.state == "loaded"}

    @property
    def catalogue(self) -> Catalogue:
        """The given catalogue with the entries of plugins, and of the configuration."""
        resolved = self.registries.providers.resolve(None)
        if self._merged is None or self._merged[0] is not resolved:
            self._merged = (resolved, self._extend(self._catalogue.with_providers(*resolved.values)))
        return self._merged[1]

    def discover(self, wanted: Callable[[str], str | None], *, strict: bool = False) -> None:
        """Load what is installed, in the order (distribution, name).

        `wanted` returns None for a plugin to load, else who blocks it. Failures are kept by name; `strict` raises them.
        """
        entry_points = late.load("importlib.metadata").entry_points
        for entry in sorted(entry_points(group=GROUP), key=lambda e: (e.dist.name if e.dist else "", e.name)):
            blocked = wanted(entry.name)
            version = entry.dist.version if entry.dist else "0"
            if blocked is not None:
                self._infos[entry.name] = PluginInfo(name=entry.name, version=version, state="blocked", error=blocked)
            else:
                self._load_entry(entry, version, strict)

    def _load_entry(self, entry: Any, version: str, strict: bool) -> None:
        began = time.perf_counter()
        try:
            module = entry.load()
            self._register(module, entry.name, version, time.perf_counter() - began)
        except (Exception, SystemExit) as exc:  # a plugin does not end the program
            if strict:
                raise PluginFailed(f'plugin "{entry.name}": {_cause(exc)}', plugin=entry.name) from exc
            self._infos[entry.name] = PluginInfo(name=entry.name, version=version, state="failed", error=_cause(exc))

    def load(self, plugin: Any) -> PluginInfo:
        """Load a module or object with hook implementations, or the name of an importable module.

        Raises `UsageError` for anything else, `HookUnknown`, and `PluginFailed` when its own code fails.
        """
        module = _imported(plugin) if isinstance(plugin, str) else plugin
        if module is None or not (inspect.ismodule(module) or any(True for _ in marked(module))):
            raise UsageError(
                f"a plugin was expected, found {module!r:.80}; accepted are modules, objects with hook implementations "
                "(@hookimpl), and names of modules"
            )
        name = getattr(module, "__name__", type(module).__name__).rpartition(".")[2].removeprefix("spine_")
        self._register(module, name, str(getattr(module, "__version__", "0")), 0.0)
        return self._infos[name]

    def _register(self, module: Any, name: str, version: str, import_s: float) -> None:
        if name in self._infos and self._infos[name].state == "loaded":
            raise DuplicateContribution(
                f'plugin "{name}" is loaded already; its version is {self._infos[name].version}'
            )
        owner = f"{name}@{version}"
        self.hooks.register(module, owner)
        offers: list[str] = []
        try:
            for kind in _CONTRIBUTIONS:
                registrar = Registrar(kind, owner, self)
                self.hooks.call(f"spine_register_{kind}", owner, registrar=registrar)
                offers.extend(registrar.offers)
        except BaseException:
            self._withdraw(owner)
            raise
        steps = [hook.removeprefix("spine_") for hook in self.hooks.offered_by(owner) if "register" not in hook]
        if steps:
            offers.append("hooks " + ", ".join(steps))
        self._infos[name] = PluginInfo(
            name=name, version=version, state="loaded", import_s=import_s, offers=tuple(offers)
        )

    def contribute(
        self, kind: str, value: Any, name: str | None, owner: str, scope: Scope | None, where: str, offers: list[str]
    ) -> Disposer:
        """Put one contribution into its registry; the disposer takes it out again."""
        match kind:
            case "tools":
                tool = as_tool(value).evolve(owner=owner)
                name, value = tool.name, tool
            case "prompts":
                name = _expect(value, kind).name
            case "protocols":
                name = _expect(value, kind).name
            case _:
                _expect(value, kind)
        if not name:
            raise UsageError(f"registrar.add for {kind} needs a name")
        registry = getattr(self.registries, "sections" if kind == "prompts" else kind)
        offers.append(f"{registry.kind} {name}")
        disposer: Disposer = registry.add(name, value, owner=owner, scope=scope, where=where or None)
        return disposer

    def unload(self, name: str) -> None:
        """Take a plugin's contributions and hooks out, last added first. Steps that run keep what they hold.

        Its `spine_close` runs in `close_unloaded`, which the runtime calls when no such step is left.
        """
        info = self._infos.get(name)
        if info is None or info.state != "loaded":
            raise UsageError(f'no plugin "{name}" is loaded; loaded are: {", ".join(self.versions) or "none"}')
        self._closing += [i for i in self.hooks.chain("spine_close") if i.plugin == info.full_name]
        self._withdraw(info.full_name)
        self._infos[name] = attrs.evolve(info, state="unloaded")

    def _withdraw(self, owner: str) -> None:
        self.registries.dispose_owner(owner)
        self.codec.remove(owner)
        self.hooks.unregister(owner)

    def unload_all(self) -> None:
        """Unload every plugin, last loaded first."""
        for info in reversed([*self._infos.values()]):
            if info.state == "loaded":
                self.unload(info.name)

    def close_unloaded(self) -> None:
        """Ask the unloaded plugins to close, in the order of their unloading; all are asked, whatever one raises."""
        errors: list[Exception] = []
        while self._closing:
            try:
                run_hook(self._closing.pop(0), "spine_close")
            except SpineError as error:
                errors.append(error)
        if errors:
            raise errors[0] if len(errors) == 1 else ExceptionGroup("closing plugins failed", errors)

    def open_session(self, scope: Scope) -> None:
        """Ask each plugin for its contributions to a session's own scope."""
        for owner in self.hooks.order("spine_session_opened"):
            self.hooks.call("spine_session_opened", owner, registrar=SessionRegistrar(self, owner, scope))


class SessionRegistrar:
    """Adds tools and sections to one session's own scope, told apart by their type."""

    def __init__(self, plugins: Plugins, owner: str, scope: Scope) -> None:
        self._plugins, self._owner, self._scope = plugins, owner, scope

    def add(self, value: Any) -> None:
        """Add a tool or a `Section`; the session's agent need not name it."""
        kind, where = "prompts" if isinstance(value, Section) else "tools", _caller()
        with _named(self._owner, "spine_session_opened", where):
            self._plugins.contribute(kind, value, None, self._owner, self._scope, where, [])


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as exc:
        if isinstance(exc, ModuleNotFoundError) and exc.name and f"{name}.".startswith(f"{exc.name}."):
            raise UsageError(f'plugin "{name}": there is no module of that name', hint="spine plugins list") from exc
        raise PluginFailed(f'plugin "{name}": {_cause(exc)}', plugin=name) from exc


@frozen
class ScopeHandle:
    """A scope that the application adds to at run time."""

    scope: Scope
    _plugins: Plugins

    def add(self, value: Any) -> Disposer:
        """Add a section or a tool to exactly this scope; the returned function takes it out again."""
        kind = "prompts" if isinstance(value, Section) else "tools"
        return self._plugins.contribute(kind, value, None, "application", self.scope, "", [])


def _cause(error: BaseException) -> str:
    """`ImportError: no module named "requests" (old_thing/__init__.py:3)`."""
    frames: Iterable[traceback.FrameSummary] = traceback.extract_tb(error.__traceback__)
    outside = [f for f in frames if not f.filename.startswith("<") and "importlib" not in f.filename]
    place = outside[-1] if outside else None
    where = f" ({'/'.join(place.filename.split('/')[-2:])}:{place.lineno})" if place else ""
    if isinstance(error, SpineError):
        return error.message
    return f"{type(error).__name__}: {error}{where}"
