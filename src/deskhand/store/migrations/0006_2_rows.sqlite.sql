INSERT INTO tokens (digest, name, user_id, scopes, created)
SELECT digest, name, user_id, 'tasks:write', 1000 * CAST(strftime('%s', created_at) AS INTEGER) FROM user_token;

DROP TABLE user_token;

UPDATE actions SET recipient = lower(json_extract(action, '$.to'));
