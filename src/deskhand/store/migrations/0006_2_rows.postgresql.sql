INSERT INTO tokens (digest, name, user_id, scopes, created)
SELECT digest, name, user_id, 'tasks:write',
    CAST(1000 * EXTRACT(EPOCH FROM CAST(created_at AS TIMESTAMPTZ)) AS BIGINT) FROM user_token;

DROP TABLE user_token;

UPDATE actions SET recipient = lower(CAST(action AS json) ->> 'to');
