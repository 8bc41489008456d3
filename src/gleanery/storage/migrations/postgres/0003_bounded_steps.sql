-- Nothing of a group can expire before this moment: until then nobody looks.
ALTER TABLE groups ADD COLUMN next_expiry BIGINT NOT NULL DEFAULT 0;

-- What a request is known by is hashed in another way; a repetition is answered as unchanged.
DELETE FROM requests;
