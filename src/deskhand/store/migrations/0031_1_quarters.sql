-- How many entries each quarter of an hour has: a day of UTC is no day of the person's, and every zone's midnight
-- begins a quarter. No part of the proof.
CREATE TABLE audit_quarters (
    quarter TEXT NOT NULL,
    result TEXT NOT NULL,
    entries BIGINT NOT NULL,
    PRIMARY KEY (quarter, result)
);
