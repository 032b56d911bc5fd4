-- database_create: make the database of the embedded server, once, before its first start.
-- Takes   nothing; the name also stands in postgres.py (DATABASE)
-- Returns nothing
-- Locks   nothing that matters: it runs in single-user mode on a cluster nobody else has seen
-- Needs   the backend's option -j, by which a statement ends with a semicolon and an empty line
CREATE DATABASE fairlead;
