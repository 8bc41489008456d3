-- Nothing of a group can expire before this moment: until then nobody looks.
ALTER TABLE groups ADD COLUMN next_expiry BIGINT NOT NULL DEFAULT 0;

-- A review takes its place in the group's order, so that a removal knows which came before it.
UPDATE groups SET clock = greatest(clock, coalesce(
    (SELECT max(created) FROM reviews WHERE reviews.group_id = groups.id), 0));

-- Groups are listed in pages, in the order in which they came into being.
CREATE INDEX groups_listed ON groups (organization_id, id);
