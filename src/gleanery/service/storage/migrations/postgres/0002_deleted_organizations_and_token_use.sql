ALTER TABLE tokens ADD COLUMN name TEXT;
ALTER TABLE tokens ADD COLUMN last_used_at BIGINT;

-- Organizations that an operator has deleted. Until finished_at is set, some of their data remains.
CREATE TABLE deleted_organizations (
    id           BIGINT  PRIMARY KEY,
    name         TEXT    NOT NULL,
    started_at   BIGINT  NOT NULL,
    finished_at  BIGINT,
    output_count BIGINT  NOT NULL,                -- when the deletion started
    file_count   BIGINT  NOT NULL
);
