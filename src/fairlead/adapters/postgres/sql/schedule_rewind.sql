-- schedule_rewind: restart schedules whose last tick is in the future, because the clock was set back.
-- Takes   nothing
-- Returns name of each
-- Locks   their rows
-- Needs   nothing: the table is small. A minute is left to servers whose clocks differ a little
UPDATE schedule SET last_tick = now() WHERE last_tick > now() + interval '1 minute' RETURNING name
