-- owner_rights: the statement that gives the owner of an installation without common roles its rights back.
-- Takes   schema
-- Returns text, to be run as it is
-- Locks   nothing
-- Needs   to be run by the owner of the tables. Migrations take rights from a role for doors, which is the owner there
SELECT format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO CURRENT_USER', :schema::text) AS text
