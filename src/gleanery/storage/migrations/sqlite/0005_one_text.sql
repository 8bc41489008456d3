-- An output's item is one text: what moves without a new value stands at its end, and links of files
-- are marks in it (see store/files.py).

ALTER TABLE outputs ADD COLUMN item BLOB NOT NULL DEFAULT x'';

UPDATE outputs SET item = CAST(
    head || ',"files":['
    || replace(replace(replace(replace(files,
        '"blob_url":"%b', '"blob_url":"' || char(2)),
        '%b%b"', char(1) || '"'),
        '"file_url":"%b', '"file_url":"' || char(3)),
        '%%', '%')
    || ']' || substr(CAST(tail AS TEXT), 1, length(tail) - length(',"files":[')) || '}' AS BLOB);

ALTER TABLE outputs DROP COLUMN head;
ALTER TABLE outputs DROP COLUMN tail;
ALTER TABLE outputs DROP COLUMN files;
