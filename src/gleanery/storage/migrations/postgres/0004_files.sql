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

CREATE TABLE loose_blobs (                        -- uploads under way, and blobs to be removed
    organization_id BIGINT  NOT NULL,
    key             TEXT    NOT NULL,
    since           BIGINT  NOT NULL,             -- 0: it is being removed
    PRIMARY KEY (organization_id, key)
);

CREATE INDEX loose_blobs_by_age ON loose_blobs (since);

ALTER TABLE outputs ADD COLUMN files BYTEA NOT NULL DEFAULT '';
ALTER TABLE outputs ADD COLUMN file_ids BYTEA NOT NULL DEFAULT '';
