-- What every page counts: requests that are not decided yet, without a look at their texts.
CREATE INDEX requests_undecided ON requests (state, expires, snoozed)
WHERE state IN ('held', 'unknown', 'waiting')
