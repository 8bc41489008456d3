-- An output's item is one text: what moves without a new value stands at its end, and links of files
-- are marks in it (see store/files.py).

ALTER TABLE outputs ADD COLUMN item BYTEA NOT NULL DEFAULT '';

UPDATE outputs SET item = head || convert_to(',"files":['
    || replace(replace(replace(replace(convert_from(files, 'UTF8'),
        '"blob_url":"%b', '"blob_url":"' || chr(2)),
        '%b%b"', chr(1) || '"'),
        '"file_url":"%b', '"file_url":"' || chr(3)),
        '%%', '%')
    || ']', 'UTF8') || substr(tail, 1, length(tail) - length(',"files":[')) || convert_to('}', 'UTF8');

ALTER TABLE outputs DROP COLUMN head;
ALTER TABLE outputs DROP COLUMN tail;
ALTER TABLE outputs DROP COLUMN files;
ALTER TABLE outputs ALTER COLUMN item DROP DEFAULT;
-- A text of some kilobytes is read as it is: to unpack it would take longer than to read it.
ALTER TABLE outputs ALTER COLUMN item SET STORAGE EXTERNAL;
ALTER TABLE outputs SET (toast_tuple_target = 8160);
