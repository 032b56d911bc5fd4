-- owner_rights: build the GRANT that restores the owner's rights in an installation without common roles.
-- Takes   schema
-- Returns text: the statement to run
-- Locks   nothing
-- Needs   to run as the owner of the tables. Migrations revoke rights from
--         fairlead_reader, and in such an installation the owner stands for that role
SELECT format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO CURRENT_USER', :schema::text) AS text
