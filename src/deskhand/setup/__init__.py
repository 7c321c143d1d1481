"""Setting a desk up: questions and config, the check-up, the clients' files, backups."""
