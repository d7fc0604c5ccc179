"""Every error of the runtime, as one tree (floor 0); callers catch by meaning, never by text.

SpineError
├── UsageError              the call or the configuration is wrong: nothing was done
│   ├── ValueRefused        a value that no event may hold: NaN, too deep, too large, a key that is no text
│   │   └── ValueTooLarge
│   ├── IdInvalid           an id outside its grammar
│   ├── ConfigInvalid       spine.toml, an environment variable, a store URL
│   ├── RouteUnknown        no such provider or model, or no adapter speaks for it
│   ├── KeyMissing          the provider wants a key and none is set; blank and malformed ones too
│   ├── DuplicateContribution
│   ├── ToolSchemaInvalid   a tool whose parameters no model could be told
│   ├── ToolUnknown         an agent names a tool that nobody registered
│   ├── HookUnknown         a plugin implements a hook that does not exist
│   ├── BudgetUnknown       a limit on cost where the model has no price
│   ├── NoVerdict           what was asked cannot be told here: a plugin that had a part is missing, data were erased
│   ├── SessionUnknown · SessionExists · SessionBusy · SessionShared · ApprovalUnknown
│   ├── ScenarioInvalid     a scenario file that does not parse
│   ├── ScriptMismatch      the script and the run disagree: exhausted, unexpected, left over
│   └── NetworkBlocked      a test opened a connection although it uses a script
├── StoreError              the store could not do it: nothing was half done
│   ├── StoreUnavailable    disk full, read-only, input/output error, not a database
│   ├── StoreNewer          written by a newer version
│   ├── StoreBusy           locked for longer than the bound
│   ├── ConcurrencyConflict another writer was there; `actual` says where the log stands
│   ├── SessionOwned        another living process owns the session
│   ├── AppendOutcomeUnknown  no answer to a commit; reopen the session to learn the truth
│   └── LogBroken           stored bytes do not match their hashes
├── EventUnknown            an event that this installation cannot project; listing still works
├── PluginFailed            a plugin's own code failed: blamed by plugin and hook
│   └── HookMisused         a hook returned nothing, the wrong type, or called `call_next` twice
├── ProviderError           (spine.llm.errors) what a model provider answered instead of an answer
└── TurnFailed              the turn ended as failed; `.turn` has everything up to there
"""

from typing import Any, ClassVar


class SpineError(Exception):
    """Base of all errors raised here: one sentence, a stable `code`, and `hint`, something to try next."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(SpineError):
    """The call or the configuration is wrong; nothing was done."""

    code = "usage"


class ValueRefused(UsageError, ValueError):
    """A value that no event may hold; `path` says where it stands, as `$.a[0]`."""

    code = "value"

    def __init__(self, message: str, *, path: str = "$", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.path = path


class ValueTooLarge(ValueRefused):
    """A value over its size limit, refused before any effect."""

    code = "too_large"


class NoVerdict(UsageError):
    """What was asked cannot be told here: a plugin that had a part is missing, or data were erased."""

    code = "no_verdict"


class IdInvalid(UsageError, ValueError):
    """An id outside its grammar."""

    code = "id"


class ConfigInvalid(UsageError):
    """spine.toml, an environment variable or a store URL is wrong; the message names file, line and nearest key."""

    code = "config"


class RouteUnknown(UsageError):
    """No provider of that name, or nothing that speaks its protocol."""

    code = "route_unknown"


class KeyMissing(UsageError):
    """The provider needs a key and none, a blank or a malformed one was found."""

    code = "key_missing"


class DuplicateContribution(UsageError):
    """The same name twice in one layer of a registry; both owners are named."""

    code = "duplicate"


class ToolSchemaInvalid(UsageError):
    """A tool whose parameters cannot be described to a model."""

    code = "tool_schema"


class ToolUnknown(UsageError):
    """An agent names a tool that nobody registered."""

    code = "tool_unknown"


class HookUnknown(UsageError):
    """A plugin implements a hook that does not exist, or one of the wrong colour (async or not)."""

    code = "hook_unknown"


class BudgetUnknown(UsageError):
    """A limit on cost that cannot be checked: the model has no price, or one in another currency."""

    code = "budget_unknown"


class SessionUnknown(UsageError):
    """No session of that id in the store."""

    code = "session_unknown"


class SessionExists(UsageError):
    """`create_session` found the session already there."""

    code = "session_exists"


class SessionBusy(UsageError):
    """The session already runs a turn."""

    code = "session_busy"


class SessionShared(UsageError):
    """Other sessions share events of this one, which therefore stay; `forks` names them."""

    code = "session_shared"

    def __init__(self, message: str, *, forks: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.forks = forks


class ApprovalUnknown(UsageError):
    """No open approval of that id."""

    code = "approval_unknown"


class ScenarioInvalid(UsageError):
    """A scenario file that does not parse; the message has file, line, column and nearest key."""

    code = "scenario"


class ScriptMismatch(UsageError):
    """A script and the run disagree: exhausted, unexpected request, or entries left over."""

    code = "script"


class NetworkBlocked(UsageError):
    """A test opened a connection to another machine although it uses a script."""

    code = "network"


class StoreError(SpineError):
    """The store could not do what was asked; nothing was half done."""

    code = "store"


class StoreUnavailable(StoreError):
    """Disk full, read-only, input/output error, or a file that is no database of ours."""

    code = "store_unavailable"


class StoreNewer(StoreError):
    """The store was written by a newer version; nothing was changed."""

    code = "store_newer"


class StoreBusy(StoreError):
    """The store stayed locked for longer than the bound."""

    code = "store_busy"


class ConcurrencyConflict(StoreError):
    """Another writer was there first; nothing was written. `actual_seq` is the head that the store holds."""

    code = "conflict"

    def __init__(self, message: str, *, actual_seq: int, actual_hash: bytes = b"", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.actual_seq = actual_seq
        self.actual_hash = actual_hash


class SessionOwned(StoreError):
    """Another living process owns the session."""

    code = "session_owned"


class AppendOutcomeUnknown(StoreError):
    """A commit got no answer in time; the session is closed and must be reopened to learn the truth."""

    code = "outcome_unknown"


class LogBroken(StoreError):
    """Stored bytes do not match their hashes; `seq` is the first event that does not."""

    code = "log_broken"

    def __init__(self, message: str, *, seq: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.seq = seq


class EventUnknown(SpineError):
    """An event that this installation cannot project; listing, verifying and exporting still work."""

    code = "event_unknown"

    def __init__(self, message: str, *, seq: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.seq = seq


class PluginFailed(SpineError):
    """A plugin's own code failed; `plugin` and `hook` say whose."""

    code = "plugin"

    def __init__(self, message: str, *, plugin: str, hook: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.plugin = plugin
        self.hook = hook


class HookMisused(PluginFailed):
    """A hook returned nothing, a value of the wrong type, or called `call_next` twice."""

    code = "hook"


class TurnFailed(SpineError):
    """The turn ended as failed; `.turn` holds what was reached, and the log everything."""

    code = "turn_failed"

    def __init__(self, message: str, *, turn: Any, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.turn = turn
