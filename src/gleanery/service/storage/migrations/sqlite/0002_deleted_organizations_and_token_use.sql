ALTER TABLE tokens ADD COLUMN name TEXT;
ALTER TABLE tokens ADD COLUMN last_used_at INTEGER;

-- Organizations that an operator has deleted. Until finished_at is set, some of their data remains.
CREATE TABLE deleted_organizations (
    id           INTEGER PRIMARY KEY,
    name         TEXT    NOT NULL,
    started_at   INTEGER NOT NULL,
    finished_at  INTEGER,
    output_count INTEGER NOT NULL,                -- when the deletion started
    file_count   INTEGER NOT NULL
) STRICT;
