-- Empty where a desk of the version before writes the entry; the trigger then counts its day alone.
ALTER TABLE audit_queue ADD COLUMN quarter TEXT;

CREATE OR REPLACE FUNCTION audit_link() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    head audit_head;
BEGIN
    UPDATE audit_head
    SET seq = seq + 1,
        hash = encode(sha256(convert_to(hash || E'\n' || (seq + 1) || E'\n' || NEW.entry, 'UTF8')), 'hex')
    WHERE id = 1 RETURNING * INTO STRICT head;
    INSERT INTO audit (seq, entry, hash) VALUES (head.seq, NEW.entry, head.hash);
    INSERT INTO audit_days (day, actor, action, result, entries, first_seq, last_seq)
    VALUES (NEW.day, NEW.actor, NEW.action, NEW.result, 1, head.seq, head.seq)
    ON CONFLICT (day, actor, action, result)
    DO UPDATE SET entries = audit_days.entries + 1, last_seq = excluded.last_seq;
    IF NEW.quarter IS NOT NULL THEN
        INSERT INTO audit_quarters (quarter, result, entries) VALUES (NEW.quarter, NEW.result, 1)
        ON CONFLICT (quarter, result) DO UPDATE SET entries = audit_quarters.entries + 1;
    END IF;
    DELETE FROM audit_queue WHERE id = NEW.id;
    RETURN NULL;
END $$;
