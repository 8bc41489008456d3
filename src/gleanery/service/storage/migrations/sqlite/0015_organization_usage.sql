-- compatible from schema 14
-- Usage of each organization on each day: see storage/usage.
CREATE TABLE organization_usage (
    organization_id INTEGER NOT NULL,
    day             INTEGER NOT NULL,             -- days since 1970, in UTC
    requests        INTEGER NOT NULL,
    received_bytes  INTEGER NOT NULL,
    sent_bytes      INTEGER NOT NULL,
    stored_outputs  INTEGER NOT NULL,
    database_bytes  INTEGER,                      -- last measured on this day; null: not measured
    file_bytes      INTEGER,
    PRIMARY KEY (organization_id, day)
) STRICT, WITHOUT ROWID;
