"""The tables of a store in PostgreSQL, and the statements on them.

One schema of the database holds one store. Payloads and hashes are `bytea`, never `jsonb`: they come back as they were
given. So do keys and media types, which may hold what no `text` can (NUL). Names are compared byte by byte
(`COLLATE "C"`), whatever the locale of the database.

Tokens come from a sequence: it never gives one twice, also when a session was forgotten in between.
"""

from functools import cache
from typing import Final

FORMAT: Final = 1
PAGE_ROWS: Final = 512
PAGE_BYTES: Final = 1024 * 1024

TABLES: Final = """
CREATE TABLE meta (format integer NOT NULL);
INSERT INTO meta VALUES (1);
CREATE SEQUENCE tokens;
CREATE TABLE owners (
    id text COLLATE "C" PRIMARY KEY,
    host text NOT NULL,
    pid bigint NOT NULL,
    started bigint NOT NULL,
    until bigint NOT NULL                       -- end of all its leases, microseconds since 1970 UTC
);
CREATE TABLE sessions (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    seq bigint NOT NULL DEFAULT 0,              -- 0: claimed, but no event yet
    hash bytea NOT NULL DEFAULT '',             -- of the event at seq, empty at 0
    token bigint NOT NULL DEFAULT 0,
    owner text COLLATE "C",                     -- owners.id
    created bigint,                             -- microseconds since 1970 UTC, of the first event of its own
    updated bigint,
    base bigint,                                -- of a fork: sessions.no of who holds the last event that it shares
    shared bigint NOT NULL DEFAULT 0            -- of a fork: how many events it shares
);
CREATE INDEX ON sessions (base) WHERE base IS NOT NULL;
CREATE TABLE events (
    session bigint,                             -- sessions.no
    seq bigint,
    type text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    at bigint NOT NULL,
    place text,
    origin text,
    required boolean NOT NULL,
    data bytea NOT NULL,
    hash bytea NOT NULL,
    PRIMARY KEY (session, seq)
);
CREATE TABLE contents (digest text COLLATE "C" PRIMARY KEY, media_type bytea NOT NULL, data bytea NOT NULL);
CREATE TABLE inbox (
    session bigint,
    no bigint GENERATED ALWAYS AS IDENTITY,
    key bytea NOT NULL,
    kind text NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (session, no)
);
CREATE TABLE inbox_keys (session bigint, key bytea, PRIMARY KEY (session, key));
"""

HOLDER: Final = (
    "SELECT o.id, o.host, o.pid, o.started, o.until FROM sessions s JOIN owners o ON o.id = s.owner WHERE s.id = %s"
)
LOCK_SESSION: Final = "SELECT seq, hash FROM sessions WHERE id = %s FOR UPDATE"
MAKE_SESSION: Final = "INSERT INTO sessions(id) VALUES (%s) ON CONFLICT (id) DO NOTHING"
CLAIM: Final = "UPDATE sessions SET token = nextval('tokens'), owner = %s WHERE id = %s RETURNING token, seq, hash"
EXTEND: Final = (
    "INSERT INTO owners VALUES (%s, %s, %s, %s, %s) "
    "ON CONFLICT (id) DO UPDATE SET until = greatest(owners.until, excluded.until)"
)
CLEAR_OWNERS: Final = (
    "DELETE FROM owners o WHERE until <= %s AND NOT EXISTS (SELECT FROM sessions s WHERE s.owner = o.id)"
)
RENEW: Final = "UPDATE owners SET until = %s WHERE id = %s"
RELEASE: Final = (
    "UPDATE sessions SET owner = NULL, token = nextval('tokens') WHERE id = %s AND owner = %s RETURNING seq"
)
FORGET: Final = "DELETE FROM sessions WHERE id = %s AND seq = 0"
HEAD: Final = "SELECT seq, hash FROM sessions WHERE id = %s AND seq > 0"
STATE: Final = "SELECT seq, hash, token FROM sessions WHERE id = %s"
LOCATE: Final = "SELECT no, seq, base, shared FROM sessions WHERE id = %s AND seq > 0"
SESSIONS: Final = (
    "SELECT s.id, s.seq, s.hash, s.created, s.updated, b.id FROM sessions s LEFT JOIN sessions b ON b.no = s.base "
    "WHERE s.seq > 0 ORDER BY s.updated, s.no"
)
CONTENTS: Final = "SELECT digest, media_type, data FROM contents WHERE digest = ANY(%s)"
INBOX: Final = (
    "SELECT i.no, i.key, i.kind, i.data FROM inbox i JOIN sessions s ON s.no = i.session WHERE s.id = %s ORDER BY i.no"
)
WAITING: Final = "SELECT DISTINCT s.id FROM inbox i JOIN sessions s ON s.no = i.session"
PUT_INBOX: Final = """
WITH session AS (SELECT no FROM sessions WHERE id = %(session)s AND seq > 0),
fresh AS (INSERT INTO inbox_keys SELECT no, %(key)b FROM session ON CONFLICT DO NOTHING RETURNING session),
entry AS (INSERT INTO inbox(session, key, kind, data) SELECT session, %(key)b, %(kind)s, %(data)b FROM fresh)
SELECT EXISTS (SELECT FROM session), EXISTS (SELECT FROM fresh)
"""
LINK: Final = """
WITH RECURSIVE line AS (
    SELECT no, base, shared FROM sessions WHERE id = %(base)s AND seq > 0
    UNION ALL SELECT s.no, s.base, s.shared FROM line JOIN sessions s ON s.no = line.base),
holder AS (
    SELECT s.no FROM sessions s JOIN events e ON e.session = s.no
    WHERE s.no IN (SELECT no FROM line) AND s.seq >= %(seq)s AND e.seq = %(seq)s AND e.hash = %(hash)b
    FOR KEY SHARE OF s)
UPDATE sessions SET base = holder.no, shared = %(seq)s, seq = %(seq)s, hash = %(hash)b
FROM holder WHERE id = %(session)s AND token = %(token)s AND sessions.seq = 0
"""
"""Makes an empty session a fork, when its base has that event; whoever deletes the event's holder waits."""
TELL: Final = "SELECT pg_notify(%s, %s)"

_ADVANCE: Final = """
WITH head AS (
    UPDATE sessions SET seq = %(last)s, hash = %(last_hash)b,
        created = coalesce(created, %(created)s::bigint), updated = coalesce(%(updated)s::bigint, updated)
    WHERE id = %(session)s AND token = %(token)s AND seq = %(seq)s AND hash = %(hash)b RETURNING no)"""
_ROWS: Final = """,
stored AS (
    INSERT INTO events SELECT head.no, e.* FROM head, unnest(
        %(seqs)s::bigint[], %(types)s::text[], %(versions)s::integer[], %(ats)s::bigint[], %(places)s::text[],
        %(origins)s::text[], %(required)s::boolean[], %(datas)b::bytea[], %(hashes)b::bytea[]) AS e)"""
_CONTENTS: Final = """,
beside AS (
    INSERT INTO contents SELECT c.*
    FROM head, unnest(%(digests)s::text[], %(media_types)b::bytea[], %(bodies)b::bytea[]) AS c
    ORDER BY 1 ON CONFLICT (digest) DO NOTHING),
revived AS (
    UPDATE contents SET media_type = c.media_type, data = c.data
    FROM head, unnest(%(digests)s::text[], %(media_types)b::bytea[], %(bodies)b::bytea[]) AS c(digest, media_type, data)
    WHERE contents.digest = c.digest AND contents.media_type = convert_to(%(erased_type)s, 'UTF8'))"""
_CONSUMED: Final = """,
taken AS (DELETE FROM inbox USING head WHERE inbox.session = head.no AND inbox.no = ANY(%(consumed)s::bigint[]))"""

_ERASED: Final = """,
erased AS (
    UPDATE events SET data = e.data
    FROM head, sessions s, unnest(%(erased_seqs)s::bigint[], %(erased_hashes)b::bytea[], %(erased_datas)b::bytea[])
    AS e(seq, hash, data) WHERE events.session = s.no AND events.seq = e.seq AND events.hash = e.hash)"""
_ERASED_CONTENTS: Final = """,
emptied AS (
    UPDATE contents SET media_type = e.media_type, data = e.data
    FROM head, unnest(%(marked)s::text[], %(marks)b::bytea[], %(markers)b::bytea[]) AS e(digest, media_type, data)
    WHERE contents.digest = e.digest)"""
PARTS: Final = {
    "rows": _ROWS,
    "contents": _CONTENTS,
    "consumed": _CONSUMED,
    "erased": _ERASED,
    "erased_contents": _ERASED_CONTENTS,
}
"""What a batch may hold, by its field, and the part of the statement that stores it."""


@cache
def append(held: tuple[str, ...]) -> str:
    """The statement that stores a batch: it returns a row exactly when token, seq and hash were those of the head."""
    return _ADVANCE + "".join(PARTS[field] for field in held) + "\nSELECT no FROM head"


@cache
def page(is_filtered: bool) -> str:
    """Some next rows of a session: at most 512, or 1 MiB of payload and one row more."""
    only = " AND type = ANY(%(types)s)" if is_filtered else ""
    columns = "seq, type, version, at, place, origin, required, data, hash"
    return f"""
SELECT {columns} FROM (
    SELECT *, sum(octet_length(data)) OVER (ORDER BY seq) - octet_length(data) AS before FROM (
        SELECT {columns} FROM events WHERE session = %(no)s AND seq > %(after)s AND seq <= %(last)s{only}
        ORDER BY seq LIMIT {PAGE_ROWS}) AS next) AS sized
WHERE before < {PAGE_BYTES} ORDER BY seq"""
