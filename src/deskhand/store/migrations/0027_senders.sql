-- From where a client registered: one sender's flood is bounded by itself.
ALTER TABLE oauth_clients ADD COLUMN sender TEXT NOT NULL DEFAULT ''
