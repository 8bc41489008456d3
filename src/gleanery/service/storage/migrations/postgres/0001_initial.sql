-- Organizations and their tokens. Times are in microseconds since 1970; columns named "expires"
-- are in seconds.

CREATE TABLE organizations (
    id               BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name             TEXT    NOT NULL UNIQUE,
    session_revision BIGINT  NOT NULL DEFAULT 0,  -- each write of session state increments it
    created_at       BIGINT  NOT NULL
);

CREATE TABLE tokens (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id BIGINT  NOT NULL REFERENCES organizations (id),
    digest          BYTEA   NOT NULL UNIQUE,      -- SHA-256; the token itself is not stored
    scopes          TEXT    NOT NULL,
    created_at      BIGINT  NOT NULL,
    expires_at      BIGINT,
    revoked_at      BIGINT
);

-- Metadata of the database, such as the fingerprint of the active key.
CREATE TABLE metadata (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- Session state. identity is a hash of the columns that identify a record.

CREATE TABLE cookies (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id BIGINT  NOT NULL,
    identity        BYTEA   NOT NULL,
    domain          TEXT    NOT NULL,
    host            TEXT    NOT NULL,             -- domain without its leading dot
    name            TEXT    NOT NULL,
    path            TEXT    NOT NULL,
    encrypted_value BYTEA   NOT NULL,
    secure          BOOLEAN NOT NULL,
    http_only       BOOLEAN NOT NULL,
    expires         BIGINT,
    updated_at      BIGINT  NOT NULL,
    PRIMARY KEY (organization_id, id),
    UNIQUE (organization_id, identity)
);

CREATE TABLE local_storage (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id BIGINT  NOT NULL,
    identity        BYTEA   NOT NULL,
    group_id        BIGINT  NOT NULL,             -- 0: the entry applies to every group
    domain          TEXT    NOT NULL,
    host            TEXT    NOT NULL,
    key             TEXT    NOT NULL,
    path            TEXT    NOT NULL,
    encrypted_value BYTEA   NOT NULL,
    expires         BIGINT,
    created_at      BIGINT  NOT NULL,
    updated_at      BIGINT  NOT NULL,
    PRIMARY KEY (organization_id, id),
    UNIQUE (organization_id, identity)
);

-- Outputs. last_seq is the sequence number of the group's last change: the time of the change, or
-- the previous number plus one, whichever is larger. It changes only under the lock on the group's
-- row.

CREATE TABLE groups (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id BIGINT  NOT NULL,
    name            TEXT    NOT NULL,             -- group_id in the API
    last_seq        BIGINT  NOT NULL,
    purged_seq      BIGINT  NOT NULL DEFAULT 0,   -- tombstones up to this number are purged
    deleted         BOOLEAN NOT NULL DEFAULT FALSE,
    output_count    BIGINT  NOT NULL DEFAULT 0,
    display_name    TEXT,
    key_fields      TEXT,                         -- JSON array: members of data that form the key
    schema          TEXT,                         -- JSON Schema of data
    retain_days     BIGINT,
    next_expiry_at  BIGINT  NOT NULL DEFAULT 0,   -- no output expires before this time
    PRIMARY KEY (organization_id, id),
    UNIQUE (organization_id, name)
);

CREATE TABLE jobs (
    id               BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id  BIGINT  NOT NULL,
    group_id         BIGINT  NOT NULL,
    name             TEXT    NOT NULL,             -- job_id in the API
    latest_review_id BIGINT,
    output_count     BIGINT  NOT NULL DEFAULT 0,
    approved_count   BIGINT  NOT NULL DEFAULT 0,
    PRIMARY KEY (organization_id, id),
    UNIQUE (organization_id, group_id, name)
);

CREATE INDEX jobs_reviewed ON jobs (organization_id, group_id, latest_review_id)
    WHERE latest_review_id IS NOT NULL;

CREATE TABLE outputs (
    id              BIGINT  NOT NULL,
    organization_id BIGINT  NOT NULL,
    group_id        BIGINT  NOT NULL,
    job_id          BIGINT  NOT NULL,
    seq             BIGINT  NOT NULL,             -- position in the change order
    identity        BYTEA   NOT NULL,             -- output_id: hash of group, job and key
    content_hash    BYTEA   NOT NULL,             -- detects changes that a client can see
    url_hash        BYTEA   NOT NULL,             -- hash of source_url
    country         TEXT,
    region          TEXT,
    approved        BOOLEAN NOT NULL,
    last_scraped_at BIGINT  NOT NULL,
    created_seq     BIGINT  NOT NULL,             -- seq of its creation
    file_ids        BYTEA   NOT NULL DEFAULT '',  -- uploaded files, 16 bytes each
    item            BYTEA   NOT NULL,             -- JSON text with markers for links
    sent_hash       BYTEA   NOT NULL DEFAULT '',  -- detects a byte-identical resend
    PRIMARY KEY (identity, organization_id)
) WITH (toast_tuple_target = 8160, fillfactor = 50);

-- Half of each page stays free for the row versions that another scrape creates. Such an update
-- changes no index, and the table does not grow to several times its size between two vacuums.

-- Items are not compressed: decompression would take longer than reading a few more kilobytes.
ALTER TABLE outputs ALTER COLUMN item SET STORAGE EXTERNAL;

-- The primary key begins with the identity, these indexes with the group. So a planner cannot
-- choose the wrong one, without statistics or with statistics of the average organization.
CREATE INDEX outputs_in_order   ON outputs (group_id, seq);
CREATE INDEX outputs_by_job     ON outputs (group_id, job_id, seq);
CREATE INDEX outputs_by_url     ON outputs (group_id, url_hash, seq);
CREATE INDEX outputs_by_country ON outputs (group_id, country, seq) WHERE country IS NOT NULL;
CREATE INDEX outputs_by_region  ON outputs (group_id, region, seq) WHERE region IS NOT NULL;

-- The statistics claim that all values differ (n_distinct = -1). Otherwise the planner could expect
-- that a filter matches most rows. It would then scan the group, even for a rare value.
ALTER TABLE outputs
    ALTER COLUMN job_id   SET (n_distinct = -1),
    ALTER COLUMN url_hash SET (n_distinct = -1),
    ALTER COLUMN country  SET (n_distinct = -1),
    ALTER COLUMN region   SET (n_distinct = -1);

CREATE SEQUENCE output_ids AS BIGINT CACHE 1;

CREATE TABLE reviews (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id BIGINT  NOT NULL,
    group_id        BIGINT  NOT NULL,
    job_id          BIGINT  NOT NULL,
    review_id       TEXT    NOT NULL,
    status          TEXT    NOT NULL,
    comment         TEXT    NOT NULL,
    created_at      BIGINT  NOT NULL,
    PRIMARY KEY (organization_id, id)
);

CREATE INDEX reviews_of_group ON reviews (group_id, id);
CREATE INDEX reviews_of_job   ON reviews (group_id, job_id);

-- Number of outputs per country in a group.
CREATE TABLE country_counts (
    organization_id BIGINT  NOT NULL,
    group_id        BIGINT  NOT NULL,
    country         TEXT    NOT NULL,
    output_count    BIGINT  NOT NULL,
    PRIMARY KEY (organization_id, group_id, country)
);

-- Deletions of outputs, in the change order.
CREATE TABLE tombstones (
    organization_id BIGINT  NOT NULL,
    group_id        BIGINT  NOT NULL,
    seq             BIGINT  NOT NULL,
    id              BIGINT  NOT NULL,
    identity        BYTEA   NOT NULL,
    job_name        TEXT    NOT NULL,
    PRIMARY KEY (organization_id, group_id, seq)
);

-- Operations on many outputs of a group, run in short transactions. A bulk job covers the outputs
-- with sequence numbers after done_seq and up to until_seq.
CREATE TABLE bulk_jobs (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id BIGINT  NOT NULL,
    group_id        BIGINT  NOT NULL,
    job_id          BIGINT,                        -- null: all jobs of the group
    kind            TEXT    NOT NULL,
    until_seq       BIGINT  NOT NULL,
    done_seq        BIGINT  NOT NULL,
    PRIMARY KEY (organization_id, id)
);

CREATE INDEX bulk_jobs_of_group ON bulk_jobs (organization_id, group_id, id);

-- Responses to requests with an Idempotency-Key.
CREATE TABLE idempotency_keys (
    organization_id BIGINT  NOT NULL,
    key_hash        BYTEA   NOT NULL,
    request_hash    BYTEA   NOT NULL,
    response        TEXT    NOT NULL,
    created_at      BIGINT  NOT NULL,
    PRIMARY KEY (organization_id, key_hash)
);

CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);

-- Files. Their bytes are blobs in the blob store, each stored once per organization.

CREATE TABLE blobs (
    organization_id BIGINT  NOT NULL,
    checksum        BYTEA   NOT NULL,             -- SHA-256 of the bytes
    key             TEXT    NOT NULL,             -- name in the blob store
    file_count      BIGINT  NOT NULL,             -- number of files with these bytes
    PRIMARY KEY (organization_id, checksum)
);

CREATE TABLE files (
    organization_id BIGINT  NOT NULL,
    id              BYTEA   NOT NULL,             -- hash of source and checksum
    checksum        BYTEA   NOT NULL,
    size            BIGINT  NOT NULL,
    file_type       TEXT    NOT NULL,
    url_etag_hash   BYTEA   NOT NULL,             -- hash of the source URL and its ETag
    source_url      TEXT    NOT NULL,
    filename        TEXT    NOT NULL,
    created_at      BIGINT  NOT NULL,
    uploaded_at     BIGINT  NOT NULL,             -- last upload
    used_at         BIGINT  NOT NULL,             -- last upload, lookup or reference
    reference_count BIGINT  NOT NULL DEFAULT 0,   -- number of references from outputs
    PRIMARY KEY (organization_id, id)
);

CREATE INDEX files_by_source    ON files (organization_id, url_etag_hash, uploaded_at);
CREATE INDEX files_unreferenced ON files (used_at) WHERE reference_count = 0;

-- Blobs without a file: unfinished uploads, and blobs to delete.
CREATE TABLE unreferenced_blobs (
    organization_id BIGINT  NOT NULL,
    key             TEXT    NOT NULL,
    unreferenced_at BIGINT  NOT NULL,             -- 0: the blob must be deleted
    PRIMARY KEY (organization_id, key)
);

CREATE INDEX unreferenced_blobs_by_age ON unreferenced_blobs (unreferenced_at);

-- The audit log. Entries are only appended.

CREATE TABLE audit_log (
    organization_id BIGINT  NOT NULL,
    id              BIGINT  NOT NULL,             -- time of the entry, or the previous id plus one
    token_id        BIGINT,                       -- null: an action from the command line
    request_id      TEXT,
    action          TEXT    NOT NULL,
    about           TEXT    NOT NULL,             -- JSON, without secret values
    PRIMARY KEY (organization_id, id)
);

-- The last id of each organization's audit log. Its row lock serialises the writers of the log.
CREATE TABLE audit_positions (
    organization_id BIGINT  NOT NULL PRIMARY KEY,
    last_id         BIGINT  NOT NULL
);

CREATE FUNCTION reject_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.id <= (extract(epoch FROM now()) - 30 * 86400) * 1000000 THEN
            RETURN OLD;
        END IF;
        RAISE EXCEPTION 'entries of the audit log are kept for at least 30 days';
    END IF;
    RAISE EXCEPTION 'the audit log is append-only';
END $$;

CREATE TRIGGER audit_log_no_update BEFORE UPDATE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION reject_audit_change();
CREATE TRIGGER audit_log_no_delete BEFORE DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION reject_audit_change();
CREATE TRIGGER audit_log_no_truncate BEFORE TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION reject_audit_change();
