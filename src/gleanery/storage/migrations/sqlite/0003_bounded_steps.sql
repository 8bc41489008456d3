-- Nothing of a group can expire before this moment: until then nobody looks.
ALTER TABLE groups ADD COLUMN next_expiry INTEGER NOT NULL DEFAULT 0;

-- What a request is known by is hashed in another way; a repetition is answered as unchanged.
DELETE FROM requests;

-- Groups are listed in pages, in the order in which they came into being.
CREATE INDEX groups_listed ON groups (organization_id, id);
