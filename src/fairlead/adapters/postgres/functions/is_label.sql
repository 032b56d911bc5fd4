-- is_label: whether this is a valid label: 1 to most_bytes bytes without control characters.
-- policy/text/names.py checks the same.
CREATE FUNCTION is_label(label text, most_bytes integer) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT octet_length(label) BETWEEN 1 AND most_bytes AND label !~ '[\u0001-\u001f\u007f-\u009f]';
END;
