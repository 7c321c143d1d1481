-- What was answered or has ended, by when: a list that the page shows.
CREATE INDEX requests_ended
ON requests ((CASE WHEN state = 'expired' THEN expires ELSE COALESCE(decided, created) END), id)
WHERE state <> 'waiting'
