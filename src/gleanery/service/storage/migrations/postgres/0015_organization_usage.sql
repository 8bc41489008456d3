-- compatible from schema 14
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
