-- Organizations and their tokens.

CREATE TABLE organizations (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    name             TEXT    NOT NULL UNIQUE,
    session_revision INTEGER NOT NULL DEFAULT 0,  -- moves with each write of session state
    created          INTEGER NOT NULL             -- microseconds, as every time but expiry
) STRICT;

CREATE TABLE tokens (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id INTEGER NOT NULL REFERENCES organizations (id),
    digest          BLOB    NOT NULL UNIQUE,      -- SHA-256: the token itself is nowhere
    scopes          TEXT    NOT NULL,
    created         INTEGER NOT NULL,
    expires         INTEGER,
    revoked         INTEGER
) STRICT;

CREATE TABLE metadata (                              -- what the database knows of itself
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

-- Session state. identity is a hash of what makes a record the same record; encrypted is the
-- encrypted value. expires is in seconds.

CREATE TABLE cookies (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id INTEGER NOT NULL,
    identity        BLOB    NOT NULL,
    domain          TEXT    NOT NULL,
    host            TEXT    NOT NULL,             -- the domain without its leading dot
    name            TEXT    NOT NULL,
    path            TEXT    NOT NULL,
    encrypted          BLOB    NOT NULL,
    secure          INTEGER NOT NULL,
    http_only       INTEGER NOT NULL,
    expires         INTEGER,
    updated         INTEGER NOT NULL,
    UNIQUE (organization_id, identity)
) STRICT;

CREATE INDEX cookies_listed ON cookies (organization_id, id);

CREATE TABLE local_storage (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id INTEGER NOT NULL,
    identity        BLOB    NOT NULL,
    group_id        INTEGER NOT NULL,             -- 0: for every group
    domain          TEXT    NOT NULL,
    host            TEXT    NOT NULL,
    key             TEXT    NOT NULL,
    path            TEXT    NOT NULL,
    encrypted          BLOB    NOT NULL,
    expires         INTEGER,
    created         INTEGER NOT NULL,
    updated         INTEGER NOT NULL,
    UNIQUE (organization_id, identity)
) STRICT;

CREATE INDEX local_storage_listed ON local_storage (organization_id, id);

-- Outputs. clock is the group's change order: the microsecond of its last change, or one more
-- than the change before it, whichever is later. It only moves under the lock on the group's row.

CREATE TABLE groups (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id INTEGER NOT NULL,
    name            TEXT    NOT NULL,             -- the group_id of the contract
    clock           INTEGER NOT NULL,
    purged          INTEGER NOT NULL DEFAULT 0,   -- deletions up to here are forgotten
    deleted         INTEGER NOT NULL DEFAULT 0,
    outputs         INTEGER NOT NULL DEFAULT 0,   -- how many it holds
    display_name    TEXT,
    key_fields      TEXT,                         -- JSON: the members of data that make the key
    schema          TEXT,                         -- JSON Schema that data must meet
    retain_days     INTEGER,
    next_expiry     INTEGER NOT NULL DEFAULT 0,   -- before this moment nothing expires
    UNIQUE (organization_id, name)
) STRICT;

CREATE INDEX groups_listed ON groups (organization_id, id);

CREATE TABLE jobs (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    name            TEXT    NOT NULL,             -- the job_id of the contract
    latest_review   INTEGER,
    outputs         INTEGER NOT NULL DEFAULT 0,
    approved        INTEGER NOT NULL DEFAULT 0,
    UNIQUE (organization_id, group_id, name)
) STRICT;

CREATE INDEX jobs_reviewed ON jobs (organization_id, group_id, latest_review)
    WHERE latest_review IS NOT NULL;

CREATE TABLE outputs (
    id              INTEGER PRIMARY KEY,
    organization_id INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    job_id          INTEGER NOT NULL,
    seq             INTEGER NOT NULL,             -- its place in the change order
    identity        BLOB    NOT NULL,             -- group, job and key, hashed: the output_id
    content         BLOB    NOT NULL,             -- all that a client could see change, hashed
    url             BLOB    NOT NULL,             -- the source_url, hashed
    country         TEXT,
    region          TEXT,
    approved        INTEGER NOT NULL,
    scraped         INTEGER NOT NULL,
    created         INTEGER NOT NULL,
    file_ids        BLOB    NOT NULL DEFAULT x'', -- which of them are ours, 16 bytes each
    item            BLOB    NOT NULL DEFAULT x'', -- its JSON text, with marks for the links of files
    sent            BLOB    NOT NULL DEFAULT x'', -- the bytes of last time and the content, hashed
    UNIQUE (identity, organization_id)
) STRICT;

-- The key begins with the identity and these with the group, so that a planner that knows little, or
-- only the average organization, can't take one for another.
CREATE INDEX outputs_in_order   ON outputs (group_id, seq);
CREATE INDEX outputs_by_job     ON outputs (group_id, job_id, seq);
CREATE INDEX outputs_by_url     ON outputs (group_id, url, seq);
CREATE INDEX outputs_by_country ON outputs (group_id, country, seq) WHERE country IS NOT NULL;
CREATE INDEX outputs_by_region  ON outputs (group_id, region, seq) WHERE region IS NOT NULL;

CREATE TABLE output_ids (last INTEGER NOT NULL) STRICT;
INSERT INTO output_ids VALUES (0);

CREATE TABLE reviews (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    job_id          INTEGER NOT NULL,
    review_id       TEXT    NOT NULL,
    status          TEXT    NOT NULL,
    comment         TEXT    NOT NULL,
    created         INTEGER NOT NULL
) STRICT;

CREATE INDEX reviews_of_group ON reviews (group_id, id);
CREATE INDEX reviews_of_job   ON reviews (group_id, job_id);

CREATE TABLE countries (                          -- how many outputs a group has of each
    organization_id INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    country         TEXT    NOT NULL,
    outputs         INTEGER NOT NULL,
    PRIMARY KEY (organization_id, group_id, country)
) STRICT, WITHOUT ROWID;

CREATE TABLE tombstones (                         -- deletions, in the change order
    organization_id INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    seq             INTEGER NOT NULL,
    id              INTEGER NOT NULL,
    identity        BLOB    NOT NULL,
    job             TEXT    NOT NULL,
    PRIMARY KEY (organization_id, group_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE bulk_jobs (                             -- long work on a group, done in steps
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    job_id          INTEGER,
    kind            TEXT    NOT NULL,
    until           INTEGER NOT NULL,
    done            INTEGER NOT NULL
) STRICT;

CREATE INDEX bulk_jobs_of_group ON bulk_jobs (organization_id, group_id, id);

CREATE TABLE requests (                           -- answers to requests that had an Idempotency-Key
    organization_id INTEGER NOT NULL,
    identity        BLOB    NOT NULL,
    content         BLOB    NOT NULL,
    answer          TEXT    NOT NULL,
    created         INTEGER NOT NULL,
    PRIMARY KEY (organization_id, identity)
) STRICT, WITHOUT ROWID;

CREATE INDEX requests_by_age ON requests (created);

-- Files: their bytes are blobs in the store of files, each once per organization.

CREATE TABLE blobs (
    organization_id INTEGER NOT NULL,
    checksum        BLOB    NOT NULL,             -- SHA-256 of the bytes
    key             TEXT    NOT NULL,             -- the name in the store
    files           INTEGER NOT NULL,             -- how many files have these bytes
    PRIMARY KEY (organization_id, checksum)
) STRICT, WITHOUT ROWID;

CREATE TABLE files (
    organization_id INTEGER NOT NULL,
    id              BLOB    NOT NULL,             -- source and checksum, hashed
    checksum        BLOB    NOT NULL,
    size            INTEGER NOT NULL,
    file_type       TEXT    NOT NULL,
    source          BLOB    NOT NULL,             -- URL and ETag, hashed: the url_etag_hash
    source_url      TEXT    NOT NULL,
    filename        TEXT    NOT NULL,
    created         INTEGER NOT NULL,
    sent            INTEGER NOT NULL,             -- when it was last sent,
    used            INTEGER NOT NULL,             -- or named or dropped
    named           INTEGER NOT NULL DEFAULT 0,   -- how often, by outputs
    PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX files_by_source ON files (organization_id, source, sent);
CREATE INDEX files_unnamed   ON files (used) WHERE named = 0;

CREATE TABLE unreferenced_blobs (                        -- uploads under way, and blobs to be removed
    organization_id INTEGER NOT NULL,
    key             TEXT    NOT NULL,
    since           INTEGER NOT NULL,             -- 0: it is being removed
    PRIMARY KEY (organization_id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX unreferenced_blobs_by_age ON unreferenced_blobs (since);

-- The audit log, which is only ever added to.

CREATE TABLE audit (
    organization_id INTEGER NOT NULL,
    id              INTEGER NOT NULL,             -- its moment, or one more than the one before
    token_id        INTEGER,                      -- null: the command line
    request_id      TEXT,
    action          TEXT    NOT NULL,
    about           TEXT    NOT NULL,             -- JSON, without any value
    PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_clocks (                       -- the newest id; its lock is that of the log
    organization_id INTEGER NOT NULL PRIMARY KEY,
    clock           INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER audit_never_changed BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is only ever added to'); END;

CREATE TRIGGER audit_not_removed BEFORE DELETE ON audit
WHEN OLD.id > (unixepoch() - 30 * 86400) * 1000000
BEGIN SELECT RAISE(ABORT, 'an entry of the audit log stays for 30 days at least'); END;
