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

CREATE TABLE facts (                              -- what the database knows of itself
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- Session state. identity is a hash of what makes a record the same record; sealed is the
-- encrypted value. expires is in seconds.

CREATE TABLE cookies (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id BIGINT  NOT NULL,
    identity        BYTEA   NOT NULL,
    domain          TEXT    NOT NULL,
    host            TEXT    NOT NULL,             -- the domain without its leading dot
    name            TEXT    NOT NULL,
    path            TEXT    NOT NULL,
    sealed          BYTEA   NOT NULL,
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
    sealed          BYTEA   NOT NULL,
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
    PRIMARY KEY (organization_id, id),
    UNIQUE (organization_id, name)
);

CREATE TABLE jobs (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id BIGINT  NOT NULL,
    group_id        BIGINT  NOT NULL,
    name            TEXT    NOT NULL,             -- the job_id of the contract
    latest_review   BIGINT,
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
    head            BYTEA   NOT NULL,             -- the item as JSON text, up to what moves
    tail            BYTEA   NOT NULL,             -- and what moves without a new value
    PRIMARY KEY (identity, organization_id)
);

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
