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

CREATE TABLE facts (                              -- what the database knows of itself
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

-- Session state. identity is a hash of what makes a record the same record; sealed is the
-- encrypted value. expires is in seconds.

CREATE TABLE cookies (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id INTEGER NOT NULL,
    identity        BLOB    NOT NULL,
    domain          TEXT    NOT NULL,
    host            TEXT    NOT NULL,             -- the domain without its leading dot
    name            TEXT    NOT NULL,
    path            TEXT    NOT NULL,
    sealed          BLOB    NOT NULL,
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
    sealed          BLOB    NOT NULL,
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
    UNIQUE (organization_id, name)
) STRICT;

CREATE TABLE jobs (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    name            TEXT    NOT NULL,             -- the job_id of the contract
    latest_review   INTEGER,
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
    head            BLOB    NOT NULL,             -- the item as JSON text, up to what moves
    tail            BLOB    NOT NULL,             -- and what moves without a new value
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
