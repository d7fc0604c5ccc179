"""Scopes and layered registries: who contributed what, and what holds where (floor 5).

A contribution stands in one layer: the global one, or exactly one scope. Reading a scope merges the global layer, then
its ancestors from the farthest to the nearest, then itself; a nearer contribution hides a farther one of the same name
and gives it back when it goes. Nothing here knows what it holds, and nothing here selects.

Changes are stamped from one counter for all kinds of registries, so that one number tells whether anything in a
scope's chain moved. Owned by the event loop's thread; no locks.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import attrs

from spine.drafts import maker
from spine.errors import DuplicateContribution, IdInvalid, UsageError
from spine.frozen import frozen
from spine.llm.catalogue import Provider
from spine.llm.protocols import AdapterFactory, WireProtocol
from spine.sections import Section
from spine.store import Store
from spine.tools import Approval, ServerTool, Tool
from spine.values import ScopeId

__all__ = ["Contribution", "Disposer", "LayeredRegistry", "Registries", "Resolved", "Scope"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Layer = ScopeId | None
"""Where a contribution stands; None is the global layer."""
StoreFactory = Callable[[str], Store]
"""Opens the store that a URL names."""
Disposer = Callable[[], None]
"""Takes a contribution back; calling it again does nothing."""


@attrs.frozen(cache_hash=True)
class Scope:
    """A place that contributions can be attached to: a tenant, a session. Above the last parent is the global layer.

    Raises `IdInvalid` for an id that is empty, longer than 200 characters, or not printable.
    """

    id: ScopeId
    parent: "Scope | None" = None

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.id, str) or not 0 < len(self.id) <= 200 or not self.id.isprintable():
            raise IdInvalid(f"scope id {self.id!r:.80} is not printable text of 1 to 200 characters")

    @property
    def chain(self) -> tuple[ScopeId, ...]:
        """The ids from this scope to its farthest ancestor."""
        return (self.id, *(self.parent.chain if self.parent is not None else ()))


@frozen(kw_only=True)
class Contribution(Generic[T_co]):
    """One registered thing: its value, whose it is, its layer, and the place in the code that added it.

    `hides` are the farther contributions of the same name, nearest first; filled in what `resolve` returns.
    """

    name: str
    value: T_co
    owner: str
    layer: Layer = None
    where: str | None = None
    number: int = 0
    """Registrations in the order they were made, over all registries."""
    hides: "tuple[Contribution[T_co], ...]" = ()


@frozen(eq=False)
class Resolved(Generic[T_co]):
    """What holds in a scope, by name in alphabetical order; never changes.

    `version` is that of the nearest scope of the chain to which something is attached.
    """

    entries: Mapping[str, Contribution[T_co]]
    version: int

    def get(self, name: str) -> T_co | None:
        """The value of that name, None when there is none."""
        entry = self.entries.get(name)
        return None if entry is None else entry.value

    @property
    def values(self) -> tuple[T_co, ...]:
        """All values, in the order of their names."""
        return tuple(entry.value for entry in self.entries.values())

    @property
    def hidden(self) -> tuple[Contribution[T_co], ...]:
        """All that is hidden by something nearer, by name, then nearest first."""
        return tuple(below for entry in self.entries.values() for below in entry.hides)

    def __iter__(self) -> Iterator[Contribution[T_co]]:
        return iter(self.entries.values())

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __len__(self) -> int:
        return len(self.entries)


class _Stamps:
    """The counter that registries share, and each layer's last stamp."""

    def __init__(self) -> None:
        self.last = 0
        self._by_layer: dict[Layer, int] = {}

    def touch(self, layer: Layer) -> int:
        self.last += 1
        self._by_layer[layer] = self.last
        return self.last

    def version(self, scope: Scope | None) -> int:
        """The latest stamp in the scope's chain: stamps only rise, so any change in it gives another number."""
        stamps = self._by_layer
        latest = stamps.get(None, 0)
        while scope is not None:
            latest = max(latest, stamps.get(scope.id, 0))
            scope = scope.parent
        return latest

    def knows(self, layer: ScopeId) -> bool:
        return layer in self._by_layer

    def forget(self, layer: ScopeId) -> None:
        self.last += 1
        self._by_layer.pop(layer, None)


class LayeredRegistry(Generic[T]):
    """Contributions of one kind. `kind` is the word for it in messages: tool, section, protocol."""

    def __init__(self, kind: str, stamps: _Stamps | None = None) -> None:
        self.kind = kind
        self._stamps = stamps or _Stamps()
        self._own = _Stamps() if stamps is not None else self._stamps
        self._layers: dict[Layer, dict[str, Contribution[T]]] = {}
        self._resolved: dict[Scope | None, Resolved[T]] = {}
        self._parents: set[ScopeId] = set()
        """Scopes above one that is kept."""

    def add(self, name: str, value: T, *, owner: str, scope: Scope | None = None, where: str | None = None) -> Disposer:
        """Register `value` in one layer, the global one unless `scope` is given.

        `owner` is `name@version` for a plugin, else words: `agent refunds`. `where` is the place in code, as
        `app.py:9`. Raises `DuplicateContribution` naming both, and then nothing was changed.
        """
        if not isinstance(name, str) or not name:
            raise UsageError(
                f"a {self.kind} was added by {_owner_text(owner)} with the name {name!r:.80}; it needs one"
            )
        layer = None if scope is None else scope.id
        there = self._layers.get(layer, {}).get(name)
        if there is not None:
            raise DuplicateContribution(_duplicate_text(self.kind, there, owner, where))
        entry = _make_entry(name, value, owner, layer, where, self._touch(layer), ())
        self._layers.setdefault(layer, {})[name] = entry
        return lambda: self.remove(entry)

    def remove(self, entry: Contribution[T]) -> None:
        """Take a contribution back; nothing happens when it is gone already."""
        names = self._layers.get(entry.layer, {})
        if names.get(entry.name) is not entry:
            return
        del names[entry.name]
        if not names:
            del self._layers[entry.layer]
        self._touch(entry.layer)

    def version(self, scope: Scope | None = None) -> int:
        """A number that changes whenever a contribution of this kind comes or goes in the scope's chain."""
        return self._own.version(scope)

    def resolve(self, scope: Scope | None = None) -> Resolved[T]:
        """What holds in `scope`; the same object is returned until something in its chain changes.

        Scopes with nothing of their own share that of the scope above them.
        """
        while scope is not None and scope.id not in self._layers:
            scope = scope.parent
        version = self._own.version(scope)
        kept = self._resolved.get(scope)
        if kept is None or kept.version != version:
            kept = self._resolved[scope] = Resolved(MappingProxyType(self._merged(scope)), version)
            if scope is not None and scope.parent is not None:
                self._parents.update(scope.parent.chain)
        return kept

    def contributions(self, owner: str | None = None) -> tuple[Contribution[T], ...]:
        """Everything registered in any layer, of one owner when given, in the order of registration."""
        found = [entry for names in self._layers.values() for entry in names.values()]
        return tuple(sorted((e for e in found if owner in (None, e.owner)), key=lambda entry: entry.number))

    def forget(self, scope: Scope) -> None:
        """Drop what is attached to a scope, and all that was kept for it; for a scope that nobody reads any more."""
        self._layers.pop(scope.id, None)
        self._resolved.pop(scope, None)
        if scope.id in self._parents:  # seldom: thousands of sessions are kept, and none is above another scope
            for kept in [kept for kept in self._resolved if kept is not None and scope.id in kept.chain]:
                del self._resolved[kept]
            self._parents.discard(scope.id)
        self._own.forget(scope.id)

    def _touch(self, layer: Layer) -> int:
        stamp = self._stamps.touch(layer)
        if self._own is not self._stamps:
            self._own.touch(layer)
        return stamp

    def _merged(self, scope: Scope | None) -> dict[str, Contribution[T]]:
        layers: tuple[Layer, ...] = (None, *reversed(scope.chain)) if scope is not None else (None,)
        merged: dict[str, Contribution[T]] = {}
        for layer in layers:
            for name, entry in self._layers.get(layer, {}).items():
                below = merged.get(name)
                merged[name] = (
                    entry if below is None else attrs.evolve(entry, hides=(attrs.evolve(below, hides=()), *below.hides))
                )
        return dict(sorted(merged.items()))


@frozen(kw_only=True)
class Registries:
    """All registries of a runtime; made by `Registries.new()`."""

    sections: LayeredRegistry[Section]
    tools: LayeredRegistry[Tool | ServerTool]
    protocols: LayeredRegistry[WireProtocol]
    adapters: LayeredRegistry[AdapterFactory]
    """By provider id."""
    providers: LayeredRegistry[Provider]
    """Catalogue entries, by id."""
    policies: LayeredRegistry[Approval]
    counters: LayeredRegistry[Callable[[str], int]]
    """Token counters, by provider id."""
    stores: LayeredRegistry[StoreFactory]
    """By URL scheme."""
    _stamps: _Stamps

    @classmethod
    def new(cls) -> "Registries":
        """Empty registries that share one counter of changes."""
        stamps = _Stamps()
        kinds = {
            "sections": "section",
            "tools": "tool",
            "protocols": "protocol",
            "adapters": "adapter",
            "providers": "provider",
            "policies": "policy",
            "counters": "token counter",
            "stores": "store",
        }
        registries: dict[str, Any] = {name: LayeredRegistry(kind, stamps) for name, kind in kinds.items()}
        return cls(stamps=stamps, **registries)

    @property
    def all(self) -> tuple[LayeredRegistry[Any], ...]:
        """Each registry once."""
        return (
            self.sections,
            self.tools,
            self.protocols,
            self.adapters,
            self.providers,
            self.policies,
            self.counters,
            self.stores,
        )

    @property
    def moves(self) -> int:
        """How often anything came or went anywhere: while it stands still, every version does."""
        return self._stamps.last

    def version(self, scope: Scope | None = None) -> int:
        """A number that changes whenever anything of any kind comes or goes in the scope's chain."""
        return self._stamps.version(scope)

    def dispose_owner(self, owner: str) -> tuple[Contribution[Any], ...]:
        """Take back all that belongs to `owner`, last registered first; returns it in that order. Never raises."""
        owned = [(entry, registry) for registry in self.all for entry in registry.contributions(owner)]
        owned.sort(key=lambda pair: pair[0].number, reverse=True)
        for entry, registry in owned:
            registry.remove(entry)
        return tuple(entry for entry, _ in owned)

    def forget(self, scope: Scope) -> None:
        """Drop a scope that nobody reads any more from every registry."""
        if not self._stamps.knows(scope.id):  # nothing was ever attached to it
            return
        for registry in self.all:
            registry.forget(scope)
        self._stamps.forget(scope.id)


_make_entry: Callable[..., Contribution[Any]] = maker(Contribution)


def _duplicate_text(kind: str, there: Contribution[Any], owner: str, where: str | None) -> str:
    layer = "the global scope" if there.layer is None else f'scope "{there.layer}"'
    first = f"from {_owner_text(there.owner)}" + (f" ({there.where})" if there.where else "")
    again = "added again" + (f" by {_owner_text(owner)}" if owner != there.owner else "")
    again += f" at {where}" if where else ""
    return f'{kind} "{there.name}" already in {layer} {first}; {again}; names are unique per scope'


def _owner_text(owner: str) -> str:
    """`agent refunds` as agent "refunds"; `orders@0.3.0` as plugin "orders@0.3.0"; one word stays."""
    kind, _, name = owner.partition(" ")
    if name:
        return f'{kind} "{name}"'
    return f'plugin "{owner}"' if "@" in owner else owner
