-- The case file, format 1, as it was released: it is never changed. FORMATS.md explains every column; what later formats
-- add is in format_2.sql and so on.
-- Every table is keyed by the capture first: recorders that share a case never share a row.

CREATE TABLE capture (
    capture INTEGER PRIMARY KEY,
    complete INTEGER NOT NULL CHECK (complete IN (0, 1)),
    on_cpu INTEGER NOT NULL CHECK (on_cpu IN (0, 1)),
    off_cpu INTEGER NOT NULL CHECK (off_cpu IN (0, 1)),
    rate_hz INTEGER NOT NULL,
    duration_ns INTEGER NOT NULL,
    started_unix_ns INTEGER NOT NULL,
    host TEXT NOT NULL,
    kernel TEXT NOT NULL,
    tool TEXT NOT NULL,
    min_block_ns INTEGER NOT NULL,
    max_block_ns INTEGER NOT NULL,
    bpf_ns_per_sample_mean REAL,
    recorder_cpu_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE capture_warning (
    capture INTEGER NOT NULL REFERENCES capture,
    warning INTEGER NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (capture, warning)
) STRICT, WITHOUT ROWID;

CREATE TABLE ledger (
    capture INTEGER NOT NULL REFERENCES capture,
    scope INTEGER NOT NULL CHECK (scope BETWEEN 0 AND 2),
    entry INTEGER NOT NULL CHECK (entry BETWEEN 0 AND 3),
    reason TEXT NOT NULL,
    samples INTEGER NOT NULL,
    PRIMARY KEY (capture, scope, entry, reason)
) STRICT, WITHOUT ROWID;

CREATE TABLE target (
    capture INTEGER NOT NULL REFERENCES capture,
    target INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    comm TEXT NOT NULL,
    exe TEXT NOT NULL,
    lua_unreadable TEXT,
    cpu_ns INTEGER,
    joined_ns INTEGER NOT NULL,
    ended_ns INTEGER,
    PRIMARY KEY (capture, target)
) STRICT, WITHOUT ROWID;

CREATE TABLE lua_vm (
    capture INTEGER NOT NULL,
    target INTEGER NOT NULL,
    vm INTEGER NOT NULL,
    global_state INTEGER NOT NULL,
    version TEXT NOT NULL,
    layout TEXT NOT NULL,
    gc64 INTEGER NOT NULL CHECK (gc64 IN (0, 1)),
    PRIMARY KEY (capture, target, vm),
    FOREIGN KEY (capture, target) REFERENCES target
) STRICT, WITHOUT ROWID;

CREATE TABLE string (
    capture INTEGER NOT NULL REFERENCES capture,
    string INTEGER NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (capture, string)
) STRICT, WITHOUT ROWID;

CREATE TABLE module (
    capture INTEGER NOT NULL,
    module INTEGER NOT NULL,
    path INTEGER NOT NULL,
    build_id INTEGER,
    PRIMARY KEY (capture, module),
    FOREIGN KEY (capture, path) REFERENCES string,
    FOREIGN KEY (capture, build_id) REFERENCES string
) STRICT, WITHOUT ROWID;

CREATE TABLE frame (
    capture INTEGER NOT NULL,
    frame INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    name INTEGER NOT NULL,
    name_reason INTEGER,
    module INTEGER,
    source INTEGER,
    line INTEGER NOT NULL,
    first_line INTEGER NOT NULL,
    address INTEGER NOT NULL,
    inlined INTEGER NOT NULL CHECK (inlined IN (0, 1)),
    guessed INTEGER NOT NULL CHECK (guessed IN (0, 1)),
    PRIMARY KEY (capture, frame),
    FOREIGN KEY (capture, name) REFERENCES string,
    FOREIGN KEY (capture, name_reason) REFERENCES string,
    FOREIGN KEY (capture, module) REFERENCES module,
    FOREIGN KEY (capture, source) REFERENCES string
) STRICT, WITHOUT ROWID;

CREATE TABLE stack (
    capture INTEGER NOT NULL,
    stack INTEGER NOT NULL,
    parent INTEGER CHECK (parent < stack),
    frame INTEGER NOT NULL,
    PRIMARY KEY (capture, stack),
    FOREIGN KEY (capture, parent) REFERENCES stack,
    FOREIGN KEY (capture, frame) REFERENCES frame
) STRICT, WITHOUT ROWID;

CREATE TABLE thread (
    capture INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    tid INTEGER NOT NULL,
    comm INTEGER NOT NULL,
    start_ns INTEGER,
    PRIMARY KEY (capture, thread),
    FOREIGN KEY (capture, comm) REFERENCES string
) STRICT, WITHOUT ROWID;

CREATE TABLE on_cpu_sample (
    capture INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    stack INTEGER,
    lua_context INTEGER NOT NULL,
    vm_state INTEGER,
    flags INTEGER NOT NULL,
    PRIMARY KEY (capture, sample),
    FOREIGN KEY (capture, thread) REFERENCES thread,
    FOREIGN KEY (capture, stack) REFERENCES stack
) STRICT, WITHOUT ROWID;

CREATE TABLE off_cpu_sample (
    capture INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    stack INTEGER,
    lua_context INTEGER NOT NULL,
    vm_state INTEGER,
    flags INTEGER NOT NULL,
    duration_ns INTEGER NOT NULL,
    runnable_ns INTEGER,
    reason INTEGER NOT NULL CHECK (reason IN (0, 1)),
    waker INTEGER,
    idle INTEGER NOT NULL CHECK (idle IN (0, 1)),
    PRIMARY KEY (capture, sample),
    FOREIGN KEY (capture, thread) REFERENCES thread,
    FOREIGN KEY (capture, stack) REFERENCES stack,
    FOREIGN KEY (capture, waker) REFERENCES thread
) STRICT, WITHOUT ROWID;

CREATE TABLE rollup_total (
    capture INTEGER NOT NULL REFERENCES capture,
    measure INTEGER NOT NULL,
    lua_context INTEGER NOT NULL,
    samples INTEGER NOT NULL,
    weight INTEGER NOT NULL,
    PRIMARY KEY (capture, measure, lua_context)
) STRICT, WITHOUT ROWID;

CREATE TABLE rollup_function (
    capture INTEGER NOT NULL REFERENCES capture,
    measure INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    name TEXT NOT NULL,
    module TEXT NOT NULL,
    source TEXT NOT NULL,
    first_line INTEGER NOT NULL,
    self_weight INTEGER NOT NULL,
    lua_self_weight INTEGER NOT NULL,
    inclusive_weight INTEGER NOT NULL,
    PRIMARY KEY (capture, measure, kind, name, module, source, first_line)
) STRICT, WITHOUT ROWID;
