-- compatible from schema 17
-- More names of countries have the code of the country as their key. Outputs that are stored under such
-- a name get the code, so that a filter by the name or the code still finds them.

WITH names (name, code) AS (VALUES
    ('aland', 'AX'), ('b.v.i.', 'VG'), ('bonaire', 'BQ'), ('bvi', 'VG'), ('caribbean netherlands', 'BQ'),
    ('chinese taipei', 'TW'), ('cocos islands', 'CC'), ('congo (drc)', 'CD'),
    ('congo, republic of the', 'CG'), ('eire', 'IE'), ('former yugoslav republic of macedonia', 'MK'),
    ('heard & mcdonald islands', 'HM'), ('heard and mcdonald islands', 'HM'), ('holy see', 'VA'),
    ('hong kong s.a.r.', 'HK'), ('hong kong sar', 'HK'), ('hong kong sar china', 'HK'), ('k.s.a.', 'SA'),
    ('keeling islands', 'CC'), ('korea, north', 'KP'), ('korea, south', 'KR'), ('kosovo', 'XK'),
    ('ksa', 'SA'), ('lao pdr', 'LA'), ('macao sar', 'MO'), ('macao sar china', 'MO'), ('macau sar', 'MO'),
    ('mainland china', 'CN'), ('myanmar (burma)', 'MM'), ('p.r. china', 'CN'), ('p.r.c.', 'CN'),
    ('palestinian territories', 'PS'), ('palestinian territory', 'PS'), ('pitcairn islands', 'PN'),
    ('pr china', 'CN'), ('prc', 'CN'), ('republic of china', 'TW'), ('republic of ireland', 'IE'),
    ('republic of kosovo', 'XK'), ('saint helena', 'SH'), ('saint martin', 'MF'), ('sint maarten', 'SX'),
    ('south georgia', 'GS'), ('south georgia & south sandwich islands', 'GS'),
    ('south georgia and south sandwich islands', 'GS'), ('st helena', 'SH'), ('st martin', 'MF'),
    ('st. helena', 'SH'), ('st. martin', 'MF'), ('svalbard', 'SJ'), ('the bvi', 'VG'),
    ('the caribbean netherlands', 'BQ'), ('the cocos islands', 'CC'),
    ('the former yugoslav republic of macedonia', 'MK'), ('the holy see', 'VA'), ('the ksa', 'SA'),
    ('the palestinian territories', 'PS'), ('the pitcairn islands', 'PN'), ('the prc', 'CN'),
    ('the republic of china', 'TW'), ('the republic of ireland', 'IE'), ('the republic of kosovo', 'XK'),
    ('the turks and caicos', 'TC'), ('the united states virgin islands', 'VI'),
    ('the vatican city state', 'VA'), ('turks & caicos', 'TC'), ('turks and caicos', 'TC'),
    ('united states virgin islands', 'VI'), ('vatican city state', 'VA'), ('xk', 'XK'), ('xkx', 'XK'),
    ('åland', 'AX'), ('éire', 'IE'))
UPDATE outputs SET country = names.code FROM groups CROSS JOIN names
WHERE outputs.organization_id = groups.organization_id AND outputs.group_id = groups.id
    AND outputs.country = names.name;

WITH names (name, code) AS (VALUES
    ('aland', 'AX'), ('b.v.i.', 'VG'), ('bonaire', 'BQ'), ('bvi', 'VG'), ('caribbean netherlands', 'BQ'),
    ('chinese taipei', 'TW'), ('cocos islands', 'CC'), ('congo (drc)', 'CD'),
    ('congo, republic of the', 'CG'), ('eire', 'IE'), ('former yugoslav republic of macedonia', 'MK'),
    ('heard & mcdonald islands', 'HM'), ('heard and mcdonald islands', 'HM'), ('holy see', 'VA'),
    ('hong kong s.a.r.', 'HK'), ('hong kong sar', 'HK'), ('hong kong sar china', 'HK'), ('k.s.a.', 'SA'),
    ('keeling islands', 'CC'), ('korea, north', 'KP'), ('korea, south', 'KR'), ('kosovo', 'XK'),
    ('ksa', 'SA'), ('lao pdr', 'LA'), ('macao sar', 'MO'), ('macao sar china', 'MO'), ('macau sar', 'MO'),
    ('mainland china', 'CN'), ('myanmar (burma)', 'MM'), ('p.r. china', 'CN'), ('p.r.c.', 'CN'),
    ('palestinian territories', 'PS'), ('palestinian territory', 'PS'), ('pitcairn islands', 'PN'),
    ('pr china', 'CN'), ('prc', 'CN'), ('republic of china', 'TW'), ('republic of ireland', 'IE'),
    ('republic of kosovo', 'XK'), ('saint helena', 'SH'), ('saint martin', 'MF'), ('sint maarten', 'SX'),
    ('south georgia', 'GS'), ('south georgia & south sandwich islands', 'GS'),
    ('south georgia and south sandwich islands', 'GS'), ('st helena', 'SH'), ('st martin', 'MF'),
    ('st. helena', 'SH'), ('st. martin', 'MF'), ('svalbard', 'SJ'), ('the bvi', 'VG'),
    ('the caribbean netherlands', 'BQ'), ('the cocos islands', 'CC'),
    ('the former yugoslav republic of macedonia', 'MK'), ('the holy see', 'VA'), ('the ksa', 'SA'),
    ('the palestinian territories', 'PS'), ('the pitcairn islands', 'PN'), ('the prc', 'CN'),
    ('the republic of china', 'TW'), ('the republic of ireland', 'IE'), ('the republic of kosovo', 'XK'),
    ('the turks and caicos', 'TC'), ('the united states virgin islands', 'VI'),
    ('the vatican city state', 'VA'), ('turks & caicos', 'TC'), ('turks and caicos', 'TC'),
    ('united states virgin islands', 'VI'), ('vatican city state', 'VA'), ('xk', 'XK'), ('xkx', 'XK'),
    ('åland', 'AX'), ('éire', 'IE'))
UPDATE approved_versions SET country = names.code FROM groups CROSS JOIN names
WHERE approved_versions.organization_id = groups.organization_id AND approved_versions.group_id = groups.id
    AND approved_versions.country = names.name;

WITH names (name, code) AS (VALUES
    ('aland', 'AX'), ('b.v.i.', 'VG'), ('bonaire', 'BQ'), ('bvi', 'VG'), ('caribbean netherlands', 'BQ'),
    ('chinese taipei', 'TW'), ('cocos islands', 'CC'), ('congo (drc)', 'CD'),
    ('congo, republic of the', 'CG'), ('eire', 'IE'), ('former yugoslav republic of macedonia', 'MK'),
    ('heard & mcdonald islands', 'HM'), ('heard and mcdonald islands', 'HM'), ('holy see', 'VA'),
    ('hong kong s.a.r.', 'HK'), ('hong kong sar', 'HK'), ('hong kong sar china', 'HK'), ('k.s.a.', 'SA'),
    ('keeling islands', 'CC'), ('korea, north', 'KP'), ('korea, south', 'KR'), ('kosovo', 'XK'),
    ('ksa', 'SA'), ('lao pdr', 'LA'), ('macao sar', 'MO'), ('macao sar china', 'MO'), ('macau sar', 'MO'),
    ('mainland china', 'CN'), ('myanmar (burma)', 'MM'), ('p.r. china', 'CN'), ('p.r.c.', 'CN'),
    ('palestinian territories', 'PS'), ('palestinian territory', 'PS'), ('pitcairn islands', 'PN'),
    ('pr china', 'CN'), ('prc', 'CN'), ('republic of china', 'TW'), ('republic of ireland', 'IE'),
    ('republic of kosovo', 'XK'), ('saint helena', 'SH'), ('saint martin', 'MF'), ('sint maarten', 'SX'),
    ('south georgia', 'GS'), ('south georgia & south sandwich islands', 'GS'),
    ('south georgia and south sandwich islands', 'GS'), ('st helena', 'SH'), ('st martin', 'MF'),
    ('st. helena', 'SH'), ('st. martin', 'MF'), ('svalbard', 'SJ'), ('the bvi', 'VG'),
    ('the caribbean netherlands', 'BQ'), ('the cocos islands', 'CC'),
    ('the former yugoslav republic of macedonia', 'MK'), ('the holy see', 'VA'), ('the ksa', 'SA'),
    ('the palestinian territories', 'PS'), ('the pitcairn islands', 'PN'), ('the prc', 'CN'),
    ('the republic of china', 'TW'), ('the republic of ireland', 'IE'), ('the republic of kosovo', 'XK'),
    ('the turks and caicos', 'TC'), ('the united states virgin islands', 'VI'),
    ('the vatican city state', 'VA'), ('turks & caicos', 'TC'), ('turks and caicos', 'TC'),
    ('united states virgin islands', 'VI'), ('vatican city state', 'VA'), ('xk', 'XK'), ('xkx', 'XK'),
    ('åland', 'AX'), ('éire', 'IE'))
INSERT INTO country_counts (organization_id, group_id, country, output_count)
SELECT organization_id, group_id, names.code, CAST(sum(output_count) AS BIGINT)
FROM country_counts JOIN names ON names.name = country_counts.country
WHERE output_count > 0
GROUP BY organization_id, group_id, names.code
ON CONFLICT (organization_id, group_id, country)
DO UPDATE SET output_count = country_counts.output_count + excluded.output_count;

WITH names (name, code) AS (VALUES
    ('aland', 'AX'), ('b.v.i.', 'VG'), ('bonaire', 'BQ'), ('bvi', 'VG'), ('caribbean netherlands', 'BQ'),
    ('chinese taipei', 'TW'), ('cocos islands', 'CC'), ('congo (drc)', 'CD'),
    ('congo, republic of the', 'CG'), ('eire', 'IE'), ('former yugoslav republic of macedonia', 'MK'),
    ('heard & mcdonald islands', 'HM'), ('heard and mcdonald islands', 'HM'), ('holy see', 'VA'),
    ('hong kong s.a.r.', 'HK'), ('hong kong sar', 'HK'), ('hong kong sar china', 'HK'), ('k.s.a.', 'SA'),
    ('keeling islands', 'CC'), ('korea, north', 'KP'), ('korea, south', 'KR'), ('kosovo', 'XK'),
    ('ksa', 'SA'), ('lao pdr', 'LA'), ('macao sar', 'MO'), ('macao sar china', 'MO'), ('macau sar', 'MO'),
    ('mainland china', 'CN'), ('myanmar (burma)', 'MM'), ('p.r. china', 'CN'), ('p.r.c.', 'CN'),
    ('palestinian territories', 'PS'), ('palestinian territory', 'PS'), ('pitcairn islands', 'PN'),
    ('pr china', 'CN'), ('prc', 'CN'), ('republic of china', 'TW'), ('republic of ireland', 'IE'),
    ('republic of kosovo', 'XK'), ('saint helena', 'SH'), ('saint martin', 'MF'), ('sint maarten', 'SX'),
    ('south georgia', 'GS'), ('south georgia & south sandwich islands', 'GS'),
    ('south georgia and south sandwich islands', 'GS'), ('st helena', 'SH'), ('st martin', 'MF'),
    ('st. helena', 'SH'), ('st. martin', 'MF'), ('svalbard', 'SJ'), ('the bvi', 'VG'),
    ('the caribbean netherlands', 'BQ'), ('the cocos islands', 'CC'),
    ('the former yugoslav republic of macedonia', 'MK'), ('the holy see', 'VA'), ('the ksa', 'SA'),
    ('the palestinian territories', 'PS'), ('the pitcairn islands', 'PN'), ('the prc', 'CN'),
    ('the republic of china', 'TW'), ('the republic of ireland', 'IE'), ('the republic of kosovo', 'XK'),
    ('the turks and caicos', 'TC'), ('the united states virgin islands', 'VI'),
    ('the vatican city state', 'VA'), ('turks & caicos', 'TC'), ('turks and caicos', 'TC'),
    ('united states virgin islands', 'VI'), ('vatican city state', 'VA'), ('xk', 'XK'), ('xkx', 'XK'),
    ('åland', 'AX'), ('éire', 'IE'))
DELETE FROM country_counts WHERE country IN (SELECT name FROM names);
