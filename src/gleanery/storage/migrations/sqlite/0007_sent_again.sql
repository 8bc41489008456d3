-- What is sent again in the very same bytes need not be read again.

ALTER TABLE outputs ADD COLUMN sent BLOB NOT NULL DEFAULT x'';  -- those of last time and the content, hashed
