-- Organizations and their tokens. Times are in microseconds since 1970; columns named "expires"
-- are in seconds.

CREATE TABLE organizations (
    id               BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name             TEXT    NOT NULL UNIQUE,
    created_at       BIGINT  NOT NULL
);

CREATE TABLE tokens (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id BIGINT  NOT NULL REFERENCES organizations (id),
    digest          BYTEA   NOT NULL UNIQUE,      -- SHA-256; the token itself is not stored
    scopes          TEXT    NOT NULL,
    created_at      BIGINT  NOT NULL,
    expires_at      BIGINT,
    revoked_at      BIGINT,
    name            TEXT,
    last_used_at    BIGINT                       -- updated about once a minute
);

CREATE INDEX tokens_of_organization ON tokens (organization_id, id) WHERE revoked_at IS NULL;

-- Sessions of the console. A session has the rights of its token and ends with it.
CREATE TABLE console_sessions (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id BIGINT  NOT NULL REFERENCES organizations (id),
    token_id        BIGINT  NOT NULL REFERENCES tokens (id),
    digest          BYTEA   NOT NULL UNIQUE,      -- SHA-256 of the cookie and the key together
    person          TEXT    NOT NULL,             -- name for reviews and the audit log
    created_at      BIGINT  NOT NULL,
    confirmed_at    BIGINT  NOT NULL,             -- when the person last proved to have the token
    last_used_at    BIGINT  NOT NULL              -- updated every few minutes
);

CREATE INDEX console_sessions_of_token ON console_sessions (organization_id, token_id);

-- Links that create one session each.
CREATE TABLE login_links (
    digest          BYTEA   PRIMARY KEY,          -- SHA-256; the link itself is not stored
    organization_id BIGINT  NOT NULL REFERENCES organizations (id),
    token_id        BIGINT  NOT NULL REFERENCES tokens (id),
    person          TEXT,                         -- null: the person gives a name at the login
    expires_at      BIGINT  NOT NULL
);

-- Organizations that an operator has deleted. Until finished_at is set, some of their data remains.
CREATE TABLE deleted_organizations (
    id           BIGINT  PRIMARY KEY,
    name         TEXT    NOT NULL,
    started_at   BIGINT  NOT NULL,
    finished_at  BIGINT,
    output_count BIGINT  NOT NULL,                -- when the deletion started
    file_count   BIGINT  NOT NULL
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
    profile         TEXT    NOT NULL DEFAULT 'default',
    host_only       BOOLEAN NOT NULL DEFAULT TRUE,
    host_only_stated BOOLEAN NOT NULL DEFAULT FALSE,  -- false: no client has said host_only
    same_site       TEXT,
    partition_site  TEXT,                         -- top-level site of a partitioned cookie (CHIPS)
    cross_site_ancestor BOOLEAN,
    revision        BIGINT  NOT NULL DEFAULT 0,   -- of the last change; see session_revisions
    PRIMARY KEY (organization_id, id),
    UNIQUE (organization_id, identity)
);

CREATE INDEX cookies_by_host
    ON cookies (organization_id, host, profile, expires, updated_at, revision);
CREATE INDEX cookies_by_identity ON cookies USING hash (identity);
CREATE INDEX cookies_partitioned ON cookies (organization_id, profile, host, name)
    WHERE partition_site IS NOT NULL;
CREATE INDEX cookies_by_expiry ON cookies (expires) WHERE expires IS NOT NULL;
CREATE INDEX cookies_expiring ON cookies (organization_id, expires, host, profile)
    WHERE expires IS NOT NULL;

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
    profile         TEXT    NOT NULL DEFAULT 'default',
    origin          TEXT,                         -- null: every origin of the host
    revision        BIGINT  NOT NULL DEFAULT 0,
    PRIMARY KEY (organization_id, id),
    UNIQUE (organization_id, identity)
);

CREATE INDEX local_storage_by_host
    ON local_storage (organization_id, host, profile, expires, updated_at, revision);
CREATE INDEX local_storage_by_identity ON local_storage USING hash (identity);
CREATE INDEX local_storage_with_origin ON local_storage (organization_id, profile, host, key)
    WHERE origin IS NOT NULL;
CREATE INDEX local_storage_by_expiry ON local_storage (expires) WHERE expires IS NOT NULL;
CREATE INDEX local_storage_expiring ON local_storage (organization_id, expires, host, profile)
    WHERE expires IS NOT NULL;

CREATE TABLE session_revisions (
    organization_id BIGINT  NOT NULL PRIMARY KEY,
    revision        BIGINT  NOT NULL                  -- each write of session state increments it
);

-- A lease gives one holder the session state of a host and a profile until it expires.
CREATE TABLE session_leases (
    organization_id BIGINT  NOT NULL,
    id              TEXT    NOT NULL,
    profile         TEXT    NOT NULL,
    domain          TEXT    NOT NULL,             -- a leading dot includes subdomains
    holder          TEXT,                         -- who holds it, for people
    token_id        BIGINT  NOT NULL,
    acquired_at     BIGINT  NOT NULL,
    expires_at      BIGINT  NOT NULL,
    PRIMARY KEY (organization_id, id)
);

CREATE INDEX session_leases_by_expiry ON session_leases (expires_at);

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
    keep_versions   INTEGER,                      -- earlier versions of each output; null: default
    keep_days       INTEGER,
    view_purged_seq BIGINT  NOT NULL DEFAULT 0,   -- like purged_seq, for view_tombstones
    approved_count  BIGINT  NOT NULL DEFAULT 0,
    daily_changes   TEXT,                         -- see storage/daily_changes.py
    identity_format INTEGER NOT NULL DEFAULT 0,   -- see resources/outputs/elements.py
    run_timeout_minutes INTEGER,                  -- null: default
    missing_after_runs INTEGER,                   -- null: missing outputs are not removed
    missing_max_share DOUBLE PRECISION,           -- null: default
    monitors         TEXT,                         -- JSON array of rules; null: the defaults
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
    waits_since      BIGINT,                       -- values wait for a review since then
    approved_seq     BIGINT,                       -- position of the last approval of the job
    complete_runs    BIGINT  NOT NULL DEFAULT 0,
    kept_runs        BIGINT  NOT NULL DEFAULT 0,   -- the removals of runs up to this one do not count
    run_due_at       BIGINT  DEFAULT 0,            -- the next look whether a run is overdue; 0: at once
    PRIMARY KEY (organization_id, id),
    UNIQUE (organization_id, group_id, name)
);

-- The condition is always true. Only a statement that has it too can use the index. Otherwise
-- PostgreSQL would prefer the index to the unique key in a search by name.
CREATE INDEX jobs_in_order ON jobs (organization_id, group_id, id) WHERE id > 0;
CREATE INDEX jobs_due ON jobs (run_due_at) WHERE run_due_at IS NOT NULL;
CREATE INDEX jobs_reviewed ON jobs (organization_id, group_id, latest_review_id)
    WHERE latest_review_id IS NOT NULL;
CREATE INDEX jobs_waiting ON jobs (organization_id, waits_since, id) WHERE waits_since IS NOT NULL;

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
    version_seq     BIGINT  NOT NULL DEFAULT 0,   -- seq at which its value was stored
    history_seq     BIGINT  NOT NULL DEFAULT 0,   -- open segment in output_history; 0: none
    view_seq        BIGINT  NOT NULL DEFAULT 0,   -- where it entered the approved view; 0: not in it
    shape           BIGINT,                       -- not used any more
    fields          BYTEA,                        -- see job_statistics; null: not counted
    run_id          BIGINT  NOT NULL DEFAULT 0,   -- run that sent it last
    run_change      SMALLINT NOT NULL DEFAULT 0,  -- what that run changed
    missing_since   BIGINT  NOT NULL DEFAULT 0,   -- first complete run without it; 0: none
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
CREATE INDEX outputs_by_approval ON outputs (group_id, approved, seq);
CREATE INDEX outputs_by_missing ON outputs (group_id, seq) WHERE missing_since > 0;
CREATE INDEX outputs_missing_by_job ON outputs (group_id, job_id, seq) WHERE missing_since > 0;
-- The approved outputs of a job: an expression, so that a planner cannot choose another index.
CREATE INDEX outputs_approved_by_job
    ON outputs (group_id, (CAST(CASE WHEN approved THEN job_id END AS BIGINT)), seq)
    WHERE CAST(CASE WHEN approved THEN job_id END AS BIGINT) IS NOT NULL;

-- The statistics claim that all values differ (n_distinct = -1). Otherwise the planner could expect
-- that a filter matches most rows. It would then scan the group, even for a rare value.
ALTER TABLE outputs
    ALTER COLUMN job_id   SET (n_distinct = -1),
    ALTER COLUMN url_hash SET (n_distinct = -1),
    ALTER COLUMN country  SET (n_distinct = -1),
    ALTER COLUMN region   SET (n_distinct = -1),
    ALTER COLUMN approved SET (n_distinct = -1);

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
    as_of           BIGINT,                        -- it applies to the values up to this seq
    output_ids      TEXT,                          -- JSON array; null: the whole job
    skipped_output_ids TEXT,                       -- those of output_ids with a later value
    findings        TEXT    NOT NULL DEFAULT '[]', -- JSON array
    person          TEXT,                          -- name of the reviewer, from the console
    PRIMARY KEY (organization_id, id)
);

CREATE INDEX reviews_of_group ON reviews (group_id, id);
CREATE INDEX reviews_of_job   ON reviews (group_id, job_id, id);
CREATE INDEX reviews_approving_job ON reviews (group_id, job_id, id)
    WHERE status = 'approved' AND output_ids IS NULL;
CREATE INDEX reviews_by_review_id ON reviews (organization_id, review_id);

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
    reason          TEXT,
    PRIMARY KEY (organization_id, group_id, seq)
);

-- Earlier versions of outputs. A row is a segment: consecutive versions of one output.
CREATE TABLE output_history (
    organization_id    BIGINT  NOT NULL,
    identity           BYTEA   NOT NULL,
    seq                BIGINT  NOT NULL,          -- where the first version of the segment began
    group_id           BIGINT  NOT NULL,
    first_replaced_seq BIGINT  NOT NULL,          -- where its oldest version was replaced
    version_count      INTEGER NOT NULL,
    versions           BYTEA   NOT NULL,          -- entries, newest first: see storage/history
    PRIMARY KEY (identity, organization_id, seq)
) WITH (toast_tuple_target = 8160, fillfactor = 80);

-- A segment grows to four times its first size; the free part of a page is for that. Entries are
-- compressed already.
ALTER TABLE output_history ALTER COLUMN versions SET STORAGE EXTERNAL;

CREATE INDEX output_history_by_age ON output_history (group_id, first_replaced_seq);

-- The approved view consists of the approved outputs and, for an output with a newer value that is
-- not approved, of its last approved version, which is here. seq is its position in the view.
CREATE TABLE approved_versions (
    organization_id BIGINT NOT NULL,
    identity        BYTEA  NOT NULL,
    id              BIGINT NOT NULL,
    group_id        BIGINT NOT NULL,
    job_id          BIGINT NOT NULL,
    seq             BIGINT NOT NULL,
    view_seq        BIGINT NOT NULL,
    version_seq     BIGINT NOT NULL,
    url_hash        BYTEA  NOT NULL,
    country         TEXT,
    region          TEXT,
    file_ids        BYTEA  NOT NULL,
    item            BYTEA  NOT NULL,
    PRIMARY KEY (identity, organization_id)
) WITH (toast_tuple_target = 8160);

ALTER TABLE approved_versions ALTER COLUMN item SET STORAGE EXTERNAL;

CREATE INDEX approved_versions_in_order   ON approved_versions (group_id, seq);
CREATE INDEX approved_versions_by_job     ON approved_versions (group_id, job_id, seq);
CREATE INDEX approved_versions_by_url     ON approved_versions (group_id, url_hash, seq);
CREATE INDEX approved_versions_by_country ON approved_versions (group_id, country, seq)
    WHERE country IS NOT NULL;
CREATE INDEX approved_versions_by_region  ON approved_versions (group_id, region, seq)
    WHERE region IS NOT NULL;

-- As for the table outputs: otherwise the planner could scan the copies of the group.
ALTER TABLE approved_versions
    ALTER COLUMN job_id   SET (n_distinct = -1),
    ALTER COLUMN url_hash SET (n_distinct = -1),
    ALTER COLUMN country  SET (n_distinct = -1),
    ALTER COLUMN region   SET (n_distinct = -1);

-- Removals from the approved view, in the change order.
CREATE TABLE view_tombstones (
    organization_id BIGINT NOT NULL,
    group_id        BIGINT NOT NULL,
    seq             BIGINT NOT NULL,
    id              BIGINT NOT NULL,
    identity        BYTEA  NOT NULL,
    job_name        TEXT   NOT NULL,
    reason          TEXT,
    PRIMARY KEY (organization_id, group_id, seq)
);

-- Field statistics: which fields the outputs of a job have, how often, and with which values. The
-- columns in JSON: see resources/fields.

-- The fields of the outputs of a job with their slots and counts, and their ranges. outputs.fields is
-- a bitmap of slots.
CREATE TABLE job_statistics (
    organization_id   BIGINT  NOT NULL,
    group_id          BIGINT  NOT NULL,
    job_id            BIGINT  NOT NULL,
    ranges            TEXT    NOT NULL,
    field_counts      TEXT    NOT NULL DEFAULT '[]',  -- outputs by field, with examples
    PRIMARY KEY (organization_id, group_id, job_id)
);

-- Runs: each is one execution of a job. Every stored output belongs to one. The columns in JSON: see
-- resources/run_records and resources/fields.
CREATE TABLE runs (
    id               BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id  BIGINT  NOT NULL,
    group_id         BIGINT  NOT NULL,
    job_id           BIGINT  NOT NULL,
    run_id           TEXT    NOT NULL,             -- run_id in the API
    is_implicit      BOOLEAN NOT NULL,             -- nobody has started it: it began with a batch
    status           TEXT    NOT NULL,             -- running, or how it ended
    is_open          BOOLEAN NOT NULL DEFAULT FALSE,  -- it runs, or outputs are compared or removed
    started_at       BIGINT  NOT NULL,             -- after the last batch of each earlier run
    seen_at          BIGINT  NOT NULL,             -- its last batch, or its start
    ends_at          BIGINT  NOT NULL,             -- it ends then, unless there is another batch
    finished_at      BIGINT,
    message          TEXT,
    labels           TEXT    NOT NULL DEFAULT '{}',
    created_count    BIGINT  NOT NULL DEFAULT 0,
    updated_count    BIGINT  NOT NULL DEFAULT 0,
    unchanged_count  BIGINT  NOT NULL DEFAULT 0,
    rejected_count   BIGINT  NOT NULL DEFAULT 0,
    missing_count    BIGINT  NOT NULL DEFAULT 0,
    removed_count    BIGINT  NOT NULL DEFAULT 0,
    sighting_count   BIGINT  NOT NULL DEFAULT 0,   -- rows of run_sightings
    slot_counts      TEXT,                         -- fields of its outputs while it runs
    field_counts     TEXT,                         -- the same by name, after its end
    complete_number  BIGINT,                       -- number of a complete run of the job
    comparison       TEXT,                         -- null, pending or done: which are missing
    compared_until   BIGINT  NOT NULL DEFAULT 0,   -- outputs up to this number are compared
    compared_seq     BIGINT  NOT NULL DEFAULT 0,   -- how far the comparison is
    output_count     BIGINT  NOT NULL DEFAULT 0,   -- outputs of the job that were compared
    removal          TEXT,                         -- null, pending, held, done, kept or replaced
    removal_count    BIGINT  NOT NULL DEFAULT 0,   -- outputs to remove
    removal_until    BIGINT  NOT NULL DEFAULT 0,   -- those that are missing since this run, or longer
    removed_seq      BIGINT  NOT NULL DEFAULT 0,   -- how far the removal is
    monitoring       TEXT,                         -- null, pending or done: was it judged
    has_alert        BOOLEAN NOT NULL DEFAULT FALSE, -- it is not a model for later runs
    sample           TEXT,                         -- what its values were like, if a rule asks
    PRIMARY KEY (organization_id, id)
) WITH (fillfactor = 50);

CREATE INDEX runs_of_group ON runs (group_id, id);
CREATE INDEX runs_of_job   ON runs (group_id, job_id, id);
CREATE INDEX runs_by_run_id ON runs (run_id, organization_id);
CREATE INDEX runs_open ON runs (group_id, job_id, id) WHERE is_open;
CREATE INDEX runs_held ON runs (organization_id, id) WHERE removal = 'held';
CREATE INDEX runs_usual ON runs (group_id, job_id, id) WHERE status = 'complete' AND NOT has_alert;

-- Outputs that a running run has seen, and whose rows do not say so any more: they were deleted, or
-- another run has seen them since then.
CREATE TABLE run_sightings (
    organization_id BIGINT   NOT NULL,
    group_id        BIGINT   NOT NULL,
    job_id          BIGINT   NOT NULL,
    run_id          BIGINT   NOT NULL,
    identity        BYTEA    NOT NULL,
    run_change      SMALLINT NOT NULL,
    fields          BYTEA,                        -- null: not counted
    generation      INTEGER  NOT NULL,            -- of the slots in fields; see slot_counts
    PRIMARY KEY (organization_id, group_id, job_id, run_id, identity)
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
    as_of           BIGINT  NOT NULL DEFAULT 0,    -- it skips outputs with a larger version_seq
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

-- Usage of each organization on each day: see storage/usage.
CREATE TABLE organization_usage (
    organization_id BIGINT  NOT NULL,
    day             BIGINT  NOT NULL,             -- days since 1970, in UTC
    requests        BIGINT  NOT NULL,
    received_bytes  BIGINT  NOT NULL,
    sent_bytes      BIGINT  NOT NULL,
    stored_outputs  BIGINT  NOT NULL,
    database_bytes  BIGINT,                       -- last measured on this day; null: not measured
    file_bytes      BIGINT,
    PRIMARY KEY (organization_id, day)
);

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

-- Webhooks: addresses that get events. An endpoint is disabled by the service, and enabled by a person.
CREATE TABLE webhooks (
    id                BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id   BIGINT  NOT NULL,
    webhook_id        TEXT    NOT NULL,             -- id in the API
    url               TEXT    NOT NULL,
    events            TEXT    NOT NULL,             -- names, each between two spaces
    group_ids         TEXT,                         -- JSON array of names; null: all groups
    description       TEXT    NOT NULL,
    format            TEXT    NOT NULL,
    header_names      TEXT    NOT NULL,             -- JSON array, as the client wrote them
    created_at        BIGINT  NOT NULL,
    updated_at        BIGINT  NOT NULL,
    disabled_at       BIGINT,
    disabled_reason   TEXT,
    failures          BIGINT  NOT NULL DEFAULT 0,   -- failed attempts since the last success
    failing_since     BIGINT,                       -- the first of them
    failed_at         BIGINT,                       -- the last of them
    resume_at         BIGINT  NOT NULL DEFAULT 0,
    PRIMARY KEY (organization_id, id)
);

CREATE UNIQUE INDEX webhooks_by_webhook_id ON webhooks (organization_id, webhook_id);

-- The secrets that sign the events of an endpoint; an old one until it expires.
CREATE TABLE webhook_secrets (
    id                BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id   BIGINT  NOT NULL,
    webhook_id        TEXT    NOT NULL,
    secret_id         TEXT    NOT NULL,
    identity          BYTEA   NOT NULL,
    encrypted_value   BYTEA   NOT NULL,
    created_at        BIGINT  NOT NULL,
    expires_at        BIGINT,
    PRIMARY KEY (organization_id, id)
);

CREATE INDEX webhook_secrets_of_webhook ON webhook_secrets (organization_id, webhook_id, id);

-- The headers that go with the events of an endpoint: their names in lower case, and their values.
CREATE TABLE webhook_headers (
    id                BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id   BIGINT  NOT NULL,
    webhook_id        TEXT    NOT NULL,
    name              TEXT    NOT NULL,
    identity          BYTEA   NOT NULL,
    encrypted_value   BYTEA   NOT NULL,
    PRIMARY KEY (organization_id, id)
);

CREATE UNIQUE INDEX webhook_headers_by_name ON webhook_headers (organization_id, webhook_id, name);

-- Events for an endpoint: those that wait, and for some time those that were delivered or failed. A
-- doorbell says that a group has changed; seq is its position then.
CREATE TABLE webhook_deliveries (
    id                BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id   BIGINT  NOT NULL,
    webhook_id        BIGINT  NOT NULL,
    delivery_id       TEXT    NOT NULL,             -- delivery_id in the API, webhook-id in the request
    event             TEXT    NOT NULL,
    body              TEXT    NOT NULL,
    group_id          BIGINT,                       -- of a doorbell
    seq               BIGINT,                       -- of a doorbell
    status            TEXT    NOT NULL,             -- waiting, delivered or failed
    created_at        BIGINT  NOT NULL,
    attempt_count     BIGINT  NOT NULL DEFAULT 0,   -- position in the schedule
    next_attempt_at   BIGINT  NOT NULL,
    attempts          TEXT    NOT NULL DEFAULT '[]',
    PRIMARY KEY (organization_id, id)
);

CREATE INDEX webhook_deliveries_of_webhook ON webhook_deliveries (organization_id, webhook_id, id);
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (organization_id, webhook_id, id)
    WHERE status = 'waiting';
CREATE INDEX webhook_deliveries_of_group ON webhook_deliveries (webhook_id, group_id)
    WHERE group_id IS NOT NULL;
CREATE INDEX webhook_deliveries_by_id ON webhook_deliveries (delivery_id, organization_id);
CREATE INDEX webhook_deliveries_by_age ON webhook_deliveries (created_at);

-- The position of the last doorbell that an endpoint has accepted, for each group.
CREATE TABLE webhook_positions (
    organization_id   BIGINT  NOT NULL,
    webhook_id        BIGINT  NOT NULL,
    group_id          BIGINT  NOT NULL,
    seq               BIGINT  NOT NULL,
    PRIMARY KEY (organization_id, webhook_id, group_id)
);

-- Alerts: open while the condition of their rule is true, and kept for some time afterwards.
CREATE TABLE alerts (
    id                BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id   BIGINT  NOT NULL,
    alert_id          TEXT    NOT NULL,             -- alert_id in the API
    group_id          BIGINT  NOT NULL,
    job_id            BIGINT  NOT NULL,
    kind              TEXT    NOT NULL,
    labels            TEXT    NOT NULL,             -- of the runs, if only runs with the same labels are compared
    rule              TEXT    NOT NULL,             -- JSON object
    facts             TEXT    NOT NULL,             -- JSON object
    usual             TEXT    NOT NULL,             -- JSON object: what was usual when it opened
    observed          TEXT    NOT NULL,             -- JSON object: what the last run was like
    run_id            TEXT,                         -- run that has opened it, in the API
    last_run_id       TEXT,
    last_run          BIGINT  NOT NULL,             -- number of the last run that was judged
    run_count         BIGINT  NOT NULL,             -- runs with this problem
    opened_at         BIGINT  NOT NULL,
    closed_at         BIGINT,
    close_reason      TEXT,                         -- over, normal or rule_removed
    acknowledged_at   BIGINT,
    acknowledged_by   TEXT,
    muted_until       BIGINT,
    is_silent         BOOLEAN NOT NULL DEFAULT FALSE, -- it has opened while it was muted, and nobody knows
    PRIMARY KEY (organization_id, id)
);

CREATE UNIQUE INDEX alerts_by_alert_id ON alerts (alert_id, organization_id);
CREATE INDEX alerts_open ON alerts (organization_id, id) WHERE closed_at IS NULL;
CREATE INDEX alerts_of_group ON alerts (group_id, id);
CREATE INDEX alerts_open_of_group ON alerts (group_id, id) WHERE closed_at IS NULL;
CREATE INDEX alerts_of_job ON alerts (group_id, job_id, id);
CREATE INDEX alerts_open_of_job ON alerts (group_id, job_id, id) WHERE closed_at IS NULL;
