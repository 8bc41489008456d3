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

CREATE TABLE loose_blobs (                        -- uploads under way, and blobs to be removed
    organization_id INTEGER NOT NULL,
    key             TEXT    NOT NULL,
    since           INTEGER NOT NULL,             -- 0: it is being removed
    PRIMARY KEY (organization_id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX loose_blobs_by_age ON loose_blobs (since);

ALTER TABLE outputs ADD COLUMN files BLOB NOT NULL DEFAULT x'';
ALTER TABLE outputs ADD COLUMN file_ids BLOB NOT NULL DEFAULT x'';
