"""Tasks: the models, the tables, the REST backend over them and the client that speaks to it."""
