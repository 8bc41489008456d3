-- Organizations and their tokens. Times are in microseconds since 1970; columns named "expires"
-- are in seconds.

CREATE TABLE organizations (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    name             TEXT    NOT NULL UNIQUE,
    session_revision INTEGER NOT NULL DEFAULT 0,  -- each write of session state increments it
    created_at       INTEGER NOT NULL
) STRICT;

CREATE TABLE tokens (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id INTEGER NOT NULL REFERENCES organizations (id),
    digest          BLOB    NOT NULL UNIQUE,      -- SHA-256; the token itself is not stored
    scopes          TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    expires_at      INTEGER,
    revoked_at      INTEGER
) STRICT;

-- Metadata of the database, such as the fingerprint of the active key.
CREATE TABLE metadata (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

-- Session state. identity is a hash of the columns that identify a record.

CREATE TABLE cookies (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id INTEGER NOT NULL,
    identity        BLOB    NOT NULL,
    domain          TEXT    NOT NULL,
    host            TEXT    NOT NULL,             -- domain without its leading dot
    name            TEXT    NOT NULL,
    path            TEXT    NOT NULL,
    encrypted_value BLOB    NOT NULL,
    secure          INTEGER NOT NULL,
    http_only       INTEGER NOT NULL,
    expires         INTEGER,
    updated_at      INTEGER NOT NULL,
    UNIQUE (organization_id, identity)
) STRICT;

CREATE INDEX cookies_listed ON cookies (organization_id, id);

CREATE TABLE local_storage (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id INTEGER NOT NULL,
    identity        BLOB    NOT NULL,
    group_id        INTEGER NOT NULL,             -- 0: the entry applies to every group
    domain          TEXT    NOT NULL,
    host            TEXT    NOT NULL,
    key             TEXT    NOT NULL,
    path            TEXT    NOT NULL,
    encrypted_value BLOB    NOT NULL,
    expires         INTEGER,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    UNIQUE (organization_id, identity)
) STRICT;

CREATE INDEX local_storage_listed ON local_storage (organization_id, id);

-- Outputs. last_seq is the sequence number of the group's last change: the time of the change, or
-- the previous number plus one, whichever is larger. It changes only under the lock on the group's
-- row.

CREATE TABLE groups (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id INTEGER NOT NULL,
    name            TEXT    NOT NULL,             -- group_id in the API
    last_seq        INTEGER NOT NULL,
    purged_seq      INTEGER NOT NULL DEFAULT 0,   -- tombstones up to this number are purged
    deleted         INTEGER NOT NULL DEFAULT 0,
    output_count    INTEGER NOT NULL DEFAULT 0,
    display_name    TEXT,
    key_fields      TEXT,                         -- JSON array: members of data that form the key
    schema          TEXT,                         -- JSON Schema of data
    retain_days     INTEGER,
    next_expiry_at  INTEGER NOT NULL DEFAULT 0,   -- no output expires before this time
    UNIQUE (organization_id, name)
) STRICT;

CREATE INDEX groups_listed ON groups (organization_id, id);

CREATE TABLE jobs (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id  INTEGER NOT NULL,
    group_id         INTEGER NOT NULL,
    name             TEXT    NOT NULL,             -- job_id in the API
    latest_review_id INTEGER,
    output_count     INTEGER NOT NULL DEFAULT 0,
    approved_count   INTEGER NOT NULL DEFAULT 0,
    UNIQUE (organization_id, group_id, name)
) STRICT;

CREATE INDEX jobs_reviewed ON jobs (organization_id, group_id, latest_review_id)
    WHERE latest_review_id IS NOT NULL;

CREATE TABLE outputs (
    id              INTEGER PRIMARY KEY,
    organization_id INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    job_id          INTEGER NOT NULL,
    seq             INTEGER NOT NULL,             -- position in the change order
    identity        BLOB    NOT NULL,             -- output_id: hash of group, job and key
    content_hash    BLOB    NOT NULL,             -- detects changes that a client can see
    url_hash        BLOB    NOT NULL,             -- hash of source_url
    country         TEXT,
    region          TEXT,
    approved        INTEGER NOT NULL,
    last_scraped_at INTEGER NOT NULL,
    created_seq     INTEGER NOT NULL,             -- seq of its creation
    file_ids        BLOB    NOT NULL DEFAULT x'', -- uploaded files, 16 bytes each
    item            BLOB    NOT NULL DEFAULT x'', -- JSON text with markers for links
    sent_hash       BLOB    NOT NULL DEFAULT x'', -- detects a byte-identical resend
    UNIQUE (identity, organization_id)
) STRICT;

-- The unique key begins with the identity, these indexes with the group. So a planner cannot
-- choose the wrong one, without statistics or with statistics of the average organization.
CREATE INDEX outputs_in_order   ON outputs (group_id, seq);
CREATE INDEX outputs_by_job     ON outputs (group_id, job_id, seq);
CREATE INDEX outputs_by_url     ON outputs (group_id, url_hash, seq);
CREATE INDEX outputs_by_country ON outputs (group_id, country, seq) WHERE country IS NOT NULL;
CREATE INDEX outputs_by_region  ON outputs (group_id, region, seq) WHERE region IS NOT NULL;

-- The last id that an output of any organization got.
CREATE TABLE output_ids (last_id INTEGER NOT NULL) STRICT;
INSERT INTO output_ids VALUES (0);

CREATE TABLE reviews (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    job_id          INTEGER NOT NULL,
    review_id       TEXT    NOT NULL,
    status          TEXT    NOT NULL,
    comment         TEXT    NOT NULL,
    created_at      INTEGER NOT NULL
) STRICT;

CREATE INDEX reviews_of_group ON reviews (group_id, id);
CREATE INDEX reviews_of_job   ON reviews (group_id, job_id);

-- Number of outputs per country in a group.
CREATE TABLE country_counts (
    organization_id INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    country         TEXT    NOT NULL,
    output_count    INTEGER NOT NULL,
    PRIMARY KEY (organization_id, group_id, country)
) STRICT, WITHOUT ROWID;

-- Deletions of outputs, in the change order.
CREATE TABLE tombstones (
    organization_id INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    seq             INTEGER NOT NULL,
    id              INTEGER NOT NULL,
    identity        BLOB    NOT NULL,
    job_name        TEXT    NOT NULL,
    PRIMARY KEY (organization_id, group_id, seq)
) STRICT, WITHOUT ROWID;

-- Operations on many outputs of a group, run in short transactions. A bulk job covers the outputs
-- with sequence numbers after done_seq and up to until_seq.
CREATE TABLE bulk_jobs (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    job_id          INTEGER,                       -- null: all jobs of the group
    kind            TEXT    NOT NULL,
    until_seq       INTEGER NOT NULL,
    done_seq        INTEGER NOT NULL
) STRICT;

CREATE INDEX bulk_jobs_of_group ON bulk_jobs (organization_id, group_id, id);

-- Responses to requests with an Idempotency-Key.
CREATE TABLE idempotency_keys (
    organization_id INTEGER NOT NULL,
    key_hash        BLOB    NOT NULL,
    request_hash    BLOB    NOT NULL,
    response        TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    PRIMARY KEY (organization_id, key_hash)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);

-- Files. Their bytes are blobs in the blob store, each stored once per organization.

CREATE TABLE blobs (
    organization_id INTEGER NOT NULL,
    checksum        BLOB    NOT NULL,             -- SHA-256 of the bytes
    key             TEXT    NOT NULL,             -- name in the blob store
    file_count      INTEGER NOT NULL,             -- number of files with these bytes
    PRIMARY KEY (organization_id, checksum)
) STRICT, WITHOUT ROWID;

CREATE TABLE files (
    organization_id INTEGER NOT NULL,
    id              BLOB    NOT NULL,             -- hash of source and checksum
    checksum        BLOB    NOT NULL,
    size            INTEGER NOT NULL,
    file_type       TEXT    NOT NULL,
    url_etag_hash   BLOB    NOT NULL,             -- hash of the source URL and its ETag
    source_url      TEXT    NOT NULL,
    filename        TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    uploaded_at     INTEGER NOT NULL,             -- last upload
    used_at         INTEGER NOT NULL,             -- last upload, lookup or reference
    reference_count INTEGER NOT NULL DEFAULT 0,   -- number of references from outputs
    PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX files_by_source    ON files (organization_id, url_etag_hash, uploaded_at);
CREATE INDEX files_unreferenced ON files (used_at) WHERE reference_count = 0;

-- Blobs without a file: unfinished uploads, and blobs to delete.
CREATE TABLE unreferenced_blobs (
    organization_id INTEGER NOT NULL,
    key             TEXT    NOT NULL,
    unreferenced_at INTEGER NOT NULL,             -- 0: the blob must be deleted
    PRIMARY KEY (organization_id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX unreferenced_blobs_by_age ON unreferenced_blobs (unreferenced_at);

-- The audit log. Entries are only appended.

CREATE TABLE audit_log (
    organization_id INTEGER NOT NULL,
    id              INTEGER NOT NULL,             -- time of the entry, or the previous id plus one
    token_id        INTEGER,                      -- null: an action from the command line
    request_id      TEXT,
    action          TEXT    NOT NULL,
    about           TEXT    NOT NULL,             -- JSON, without secret values
    PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

-- The last id of each organization's audit log. Its row lock serialises the writers of the log.
CREATE TABLE audit_positions (
    organization_id INTEGER NOT NULL PRIMARY KEY,
    last_id         INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER audit_log_no_update BEFORE UPDATE ON audit_log
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

CREATE TRIGGER audit_log_no_delete BEFORE DELETE ON audit_log
WHEN OLD.id > (unixepoch() - 30 * 86400) * 1000000
BEGIN SELECT RAISE(ABORT, 'entries of the audit log are kept for at least 30 days'); END;
