-- Organizations and their tokens.

CREATE TABLE organizations (
    id               BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name             TEXT    NOT NULL UNIQUE,
    session_revision BIGINT  NOT NULL DEFAULT 0,  -- moves with each write of session state
    created          BIGINT  NOT NULL             -- microseconds, as every time but expiry
);

CREATE TABLE tokens (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id BIGINT  NOT NULL REFERENCES organizations (id),
    digest          BYTEA   NOT NULL UNIQUE,      -- SHA-256: the token itself is nowhere
    scopes          TEXT    NOT NULL,
    created         BIGINT  NOT NULL,
    expires         BIGINT,
    revoked         BIGINT
);

CREATE TABLE metadata (                              -- what the database knows of itself
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- Session state. identity is a hash of what makes a record the same record; encrypted is the
-- encrypted value. expires is in seconds.

CREATE TABLE cookies (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id BIGINT  NOT NULL,
    identity        BYTEA   NOT NULL,
    domain          TEXT    NOT NULL,
    host            TEXT    NOT NULL,             -- the domain without its leading dot
    name            TEXT    NOT NULL,
    path            TEXT    NOT NULL,
    encrypted          BYTEA   NOT NULL,
    secure          BOOLEAN NOT NULL,
    http_only       BOOLEAN NOT NULL,
    expires         BIGINT,
    updated         BIGINT  NOT NULL,
    PRIMARY KEY (organization_id, id),
    UNIQUE (organization_id, identity)
);

CREATE TABLE local_storage (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id BIGINT  NOT NULL,
    identity        BYTEA   NOT NULL,
    group_id        BIGINT  NOT NULL,             -- 0: for every group
    domain          TEXT    NOT NULL,
    host            TEXT    NOT NULL,
    key             TEXT    NOT NULL,
    path            TEXT    NOT NULL,
    encrypted          BYTEA   NOT NULL,
    expires         BIGINT,
    created         BIGINT  NOT NULL,
    updated         BIGINT  NOT NULL,
    PRIMARY KEY (organization_id, id),
    UNIQUE (organization_id, identity)
);

-- Outputs. clock is the group's change order: the microsecond of its last change, or one more
-- than the change before it, whichever is later. It only moves under the lock on the group's row.

CREATE TABLE groups (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id BIGINT  NOT NULL,
    name            TEXT    NOT NULL,             -- the group_id of the contract
    clock           BIGINT  NOT NULL,
    purged          BIGINT  NOT NULL DEFAULT 0,   -- deletions up to here are forgotten
    deleted         BOOLEAN NOT NULL DEFAULT FALSE,
    outputs         BIGINT  NOT NULL DEFAULT 0,   -- how many it holds
    display_name    TEXT,
    key_fields      TEXT,                         -- JSON: the members of data that make the key
    schema          TEXT,                         -- JSON Schema that data must meet
    retain_days     BIGINT,
    next_expiry     BIGINT  NOT NULL DEFAULT 0,   -- before this moment nothing expires
    PRIMARY KEY (organization_id, id),
    UNIQUE (organization_id, name)
);

CREATE TABLE jobs (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id BIGINT  NOT NULL,
    group_id        BIGINT  NOT NULL,
    name            TEXT    NOT NULL,             -- the job_id of the contract
    latest_review   BIGINT,
    outputs         BIGINT  NOT NULL DEFAULT 0,
    approved        BIGINT  NOT NULL DEFAULT 0,
    PRIMARY KEY (organization_id, id),
    UNIQUE (organization_id, group_id, name)
);

CREATE INDEX jobs_reviewed ON jobs (organization_id, group_id, latest_review)
    WHERE latest_review IS NOT NULL;

CREATE TABLE outputs (
    id              BIGINT  NOT NULL,
    organization_id BIGINT  NOT NULL,
    group_id        BIGINT  NOT NULL,
    job_id          BIGINT  NOT NULL,
    seq             BIGINT  NOT NULL,             -- its place in the change order
    identity        BYTEA   NOT NULL,             -- group, job and key, hashed: the output_id
    content         BYTEA   NOT NULL,             -- all that a client could see change, hashed
    url             BYTEA   NOT NULL,             -- the source_url, hashed
    country         TEXT,
    region          TEXT,
    approved        BOOLEAN NOT NULL,
    scraped         BIGINT  NOT NULL,
    created         BIGINT  NOT NULL,
    file_ids        BYTEA   NOT NULL DEFAULT '', -- which of them are ours, 16 bytes each
    item            BYTEA   NOT NULL,             -- its JSON text, with marks for the links of files
    sent            BYTEA   NOT NULL DEFAULT '',  -- the bytes of last time and the content, hashed
    PRIMARY KEY (identity, organization_id)
) WITH (toast_tuple_target = 8160, fillfactor = 50);

-- Half of a page is left for the versions that another scrape makes of what is on it: these then go
-- into no index, and a group does not grow to several times its size between two vacuums.

-- A text of some kilobytes is read as it is: to unpack it would take longer than to read it.
ALTER TABLE outputs ALTER COLUMN item SET STORAGE EXTERNAL;

-- The key begins with the identity and these with the group, so that a planner that knows little, or
-- only the average organization, can't take one for another.
CREATE INDEX outputs_in_order   ON outputs (group_id, seq);
CREATE INDEX outputs_by_job     ON outputs (group_id, job_id, seq);
CREATE INDEX outputs_by_url     ON outputs (group_id, url, seq);
CREATE INDEX outputs_by_country ON outputs (group_id, country, seq) WHERE country IS NOT NULL;
CREATE INDEX outputs_by_region  ON outputs (group_id, region, seq) WHERE region IS NOT NULL;

CREATE SEQUENCE output_ids AS BIGINT CACHE 1;

CREATE TABLE reviews (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id BIGINT  NOT NULL,
    group_id        BIGINT  NOT NULL,
    job_id          BIGINT  NOT NULL,
    review_id       TEXT    NOT NULL,
    status          TEXT    NOT NULL,
    comment         TEXT    NOT NULL,
    created         BIGINT  NOT NULL,
    PRIMARY KEY (organization_id, id)
);

CREATE INDEX reviews_of_group ON reviews (group_id, id);
CREATE INDEX reviews_of_job   ON reviews (group_id, job_id);

CREATE TABLE countries (                          -- how many outputs a group has of each
    organization_id BIGINT  NOT NULL,
    group_id        BIGINT  NOT NULL,
    country         TEXT    NOT NULL,
    outputs         BIGINT  NOT NULL,
    PRIMARY KEY (organization_id, group_id, country)
);

CREATE TABLE tombstones (                         -- deletions, in the change order
    organization_id BIGINT  NOT NULL,
    group_id        BIGINT  NOT NULL,
    seq             BIGINT  NOT NULL,
    id              BIGINT  NOT NULL,
    identity        BYTEA   NOT NULL,
    job             TEXT    NOT NULL,
    PRIMARY KEY (organization_id, group_id, seq)
);

CREATE TABLE bulk_jobs (                             -- long work on a group, done in steps
    id              BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id BIGINT  NOT NULL,
    group_id        BIGINT  NOT NULL,
    job_id          BIGINT,
    kind            TEXT    NOT NULL,
    until           BIGINT  NOT NULL,
    done            BIGINT  NOT NULL,
    PRIMARY KEY (organization_id, id)
);

CREATE INDEX bulk_jobs_of_group ON bulk_jobs (organization_id, group_id, id);

CREATE TABLE requests (                           -- answers to requests that had an Idempotency-Key
    organization_id BIGINT  NOT NULL,
    identity        BYTEA   NOT NULL,
    content         BYTEA   NOT NULL,
    answer          TEXT    NOT NULL,
    created         BIGINT  NOT NULL,
    PRIMARY KEY (organization_id, identity)
);

CREATE INDEX requests_by_age ON requests (created);

-- Files: their bytes are blobs in the store of files, each once per organization.

CREATE TABLE blobs (
    organization_id BIGINT  NOT NULL,
    checksum        BYTEA   NOT NULL,             -- SHA-256 of the bytes
    key             TEXT    NOT NULL,             -- the name in the store
    files           BIGINT  NOT NULL,             -- how many files have these bytes
    PRIMARY KEY (organization_id, checksum)
);

CREATE TABLE files (
    organization_id BIGINT  NOT NULL,
    id              BYTEA   NOT NULL,             -- source and checksum, hashed
    checksum        BYTEA   NOT NULL,
    size            BIGINT  NOT NULL,
    file_type       TEXT    NOT NULL,
    source          BYTEA   NOT NULL,             -- URL and ETag, hashed: the url_etag_hash
    source_url      TEXT    NOT NULL,
    filename        TEXT    NOT NULL,
    created         BIGINT  NOT NULL,
    sent            BIGINT  NOT NULL,             -- when it was last sent,
    used            BIGINT  NOT NULL,             -- or named or dropped
    named           BIGINT  NOT NULL DEFAULT 0,   -- how often, by outputs
    PRIMARY KEY (organization_id, id)
);

CREATE INDEX files_by_source ON files (organization_id, source, sent);
CREATE INDEX files_unnamed   ON files (used) WHERE named = 0;

CREATE TABLE unreferenced_blobs (                        -- uploads under way, and blobs to be removed
    organization_id BIGINT  NOT NULL,
    key             TEXT    NOT NULL,
    since           BIGINT  NOT NULL,             -- 0: it is being removed
    PRIMARY KEY (organization_id, key)
);

CREATE INDEX unreferenced_blobs_by_age ON unreferenced_blobs (since);

-- The audit log, which is only ever added to.

CREATE TABLE audit (
    organization_id BIGINT  NOT NULL,
    id              BIGINT  NOT NULL,             -- its moment, or one more than the one before
    token_id        BIGINT,                       -- null: the command line
    request_id      TEXT,
    action          TEXT    NOT NULL,
    about           TEXT    NOT NULL,             -- JSON, without any value
    PRIMARY KEY (organization_id, id)
);

CREATE TABLE audit_clocks (                       -- the newest id; its lock is that of the log
    organization_id BIGINT  NOT NULL PRIMARY KEY,
    clock           BIGINT  NOT NULL
);

CREATE FUNCTION audit_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.id <= (extract(epoch FROM now()) - 30 * 86400) * 1000000 THEN
            RETURN OLD;
        END IF;
        RAISE EXCEPTION 'an entry of the audit log stays for 30 days at least';
    END IF;
    RAISE EXCEPTION 'the audit log is only ever added to';
END $$;

CREATE TRIGGER audit_never_changed BEFORE UPDATE ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_stays();
CREATE TRIGGER audit_not_removed BEFORE DELETE ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_stays();
CREATE TRIGGER audit_not_emptied BEFORE TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_stays();
