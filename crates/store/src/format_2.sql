-- What format 2 adds to format 1. Until it is released, tables of other subjects (compile state, calls) are added at the end, and
-- named in TABLES_OF_FORMAT_2 of schema.rs, and testdata/format-2.tl is written anew by the generator in tests/fixture.rs; afterwards a
-- change is a new format. Added columns are NULL in captures of format 1.

-- Place in the list of categories; NULL where the recorder did not tell.
ALTER TABLE on_cpu_sample ADD COLUMN category INTEGER;
-- Bit n: the sample may belong to category n as well.
ALTER TABLE on_cpu_sample ADD COLUMN may_be INTEGER;

ALTER TABLE capture ADD COLUMN requests INTEGER;
ALTER TABLE capture ADD COLUMN requests_source TEXT;
ALTER TABLE capture ADD COLUMN requests_reason TEXT;
