-- What is sent again in the very same bytes need not be read again.

ALTER TABLE outputs ADD COLUMN sent BYTEA NOT NULL DEFAULT '';  -- those of last time and the content, hashed

-- An output that is scraped again stays on its page, and out of the indexes, if the page has room for
-- its other version. Without it a group grew to several times its size between two vacuums.
ALTER TABLE outputs SET (fillfactor = 50);
