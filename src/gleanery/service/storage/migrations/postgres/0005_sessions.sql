-- What browsers know of a cookie and of an entry beyond the fixed members of the API.

ALTER TABLE cookies ADD COLUMN profile TEXT NOT NULL DEFAULT 'default';
ALTER TABLE cookies ADD COLUMN host_only BOOLEAN NOT NULL DEFAULT TRUE;
ALTER TABLE cookies ADD COLUMN same_site TEXT;
ALTER TABLE cookies ADD COLUMN partition_site TEXT;
ALTER TABLE cookies ADD COLUMN cross_site_ancestor BOOLEAN;
ALTER TABLE cookies ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;
UPDATE cookies SET host_only = FALSE WHERE domain <> host;

ALTER TABLE local_storage ADD COLUMN profile TEXT NOT NULL DEFAULT 'default';
ALTER TABLE local_storage ADD COLUMN origin TEXT;
ALTER TABLE local_storage ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;

-- Counts the records of each domain, and finds those of a domain, without reading the values.
CREATE INDEX cookies_by_host
    ON cookies (organization_id, host, profile, expires, updated_at, revision);
CREATE INDEX local_storage_by_host
    ON local_storage (organization_id, host, profile, expires, updated_at, revision);

-- Finds a record by its identity. Without statistics the unique index costs the planner as much as
-- the index by host, which would read every record of the organization. A hash index costs less.
CREATE INDEX cookies_by_identity ON cookies USING hash (identity);
CREATE INDEX local_storage_by_identity ON local_storage USING hash (identity);

-- Finds the record that a client means who does not name its partition or origin.
CREATE INDEX cookies_partitioned ON cookies (organization_id, profile, host, name)
    WHERE partition_site IS NOT NULL;
CREATE INDEX local_storage_with_origin ON local_storage (organization_id, profile, host, key)
    WHERE origin IS NOT NULL;

-- Counts the records that have expired or will soon, for the metric.
CREATE INDEX cookies_by_expiry ON cookies (expires) WHERE expires IS NOT NULL;
CREATE INDEX local_storage_by_expiry ON local_storage (expires) WHERE expires IS NOT NULL;

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
