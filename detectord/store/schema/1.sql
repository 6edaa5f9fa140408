CREATE TABLE incidents (
    id TEXT PRIMARY KEY, node TEXT NOT NULL, fault TEXT NOT NULL, state TEXT NOT NULL,
    opened REAL NOT NULL, updated REAL NOT NULL, number INTEGER NOT NULL, body BLOB NOT NULL
) STRICT;
CREATE INDEX incidents_by_state ON incidents (state, updated);
CREATE TABLE event_keys (key TEXT PRIMARY KEY, at REAL NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX event_keys_by_time ON event_keys (at);
CREATE TABLE outbox (
    id TEXT NOT NULL, sink TEXT NOT NULL, body BLOB NOT NULL, created REAL NOT NULL, due REAL,
    tries INTEGER NOT NULL, outcome TEXT NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (id, sink)
) STRICT;
CREATE INDEX outbox_by_due ON outbox (sink, due) WHERE due IS NOT NULL;
CREATE TABLE exclusions (one INTEGER PRIMARY KEY CHECK (one = 1), body BLOB NOT NULL) STRICT;
