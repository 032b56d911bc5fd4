-- 0038_no_withheld_answers: what cannot be published stays in the journal; nothing read this table.
-- Phase   post (the version before it copies such answers here)
-- Needs   0034_blast_radius

DROP TABLE withheld_answer;
