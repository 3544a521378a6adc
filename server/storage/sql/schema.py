"""The tables of both databases, as SQLite writes them; postgres/schema.py translates them. A script never changes.

Instants are milliseconds since 1970 UTC, `class` is 0 for live jobs and 1 for batch jobs, JSON is text. The table
of jobs has a rowid: without one, its long rows would lie in the inner pages of SQLite's search tree.
"""

TABLES = """
    CREATE TABLE jobs (
        id TEXT PRIMARY KEY,
        account TEXT NOT NULL,
        environment TEXT NOT NULL,
        class INTEGER NOT NULL,
        state TEXT NOT NULL,
        options TEXT NOT NULL,
        source TEXT NOT NULL,
        source_type TEXT NOT NULL,        -- of the source, once more to be searched
        blob TEXT,
        quotas TEXT NOT NULL,             -- what acceptance took: [{"name", "window", "amount"}]
        retention_ms INTEGER NOT NULL,
        virtual_time REAL NOT NULL,
        weight REAL NOT NULL,             -- what its turn costs the account: *counted_s* / *weight*
        counted_s REAL NOT NULL,
        created_at INTEGER NOT NULL,
        queued_at INTEGER NOT NULL,       -- when it last entered the queue
        run_after INTEGER NOT NULL,
        claimed_at INTEGER,
        started_at INTEGER,
        finished_at INTEGER,
        answered_at INTEGER,
        erased_at INTEGER,
        expires_at INTEGER,
        cancel_requested_at INTEGER,
        attempt INTEGER NOT NULL DEFAULT 0,
        stuck INTEGER NOT NULL DEFAULT 0, -- attempts since the job last got further
        epoch INTEGER NOT NULL DEFAULT 0,
        lease_id TEXT,
        owner TEXT,
        lease_until INTEGER,
        last_seq INTEGER NOT NULL DEFAULT 0,    -- of the events that readers get
        last_entry INTEGER NOT NULL DEFAULT 0,  -- of the timeline
        progress REAL NOT NULL DEFAULT 0,
        stage TEXT,
        duration_s REAL,
        language TEXT,
        language_probability REAL,
        engine TEXT,
        model TEXT,
        text TEXT,
        last_error TEXT,                  -- of an attempt; what the client sees is *error*
        error TEXT,
        warnings TEXT NOT NULL,
        kept INTEGER NOT NULL,            -- 0: results are handed over once
        speakers TEXT,                    -- who speaks for how long, where voices are told apart, as JSON
        languages TEXT,                   -- the seconds of speech in each that was found, most first, as JSON
        revision INTEGER NOT NULL DEFAULT 0     -- of the corrections by people
    );
    -- Downloads and transcriptions are claimed apart, and each environment by itself.
    CREATE INDEX jobs_queue ON jobs (
        class, (blob IS NULL AND source_type = 'url'), environment, virtual_time, id
    ) WHERE state = 'queued';
    -- With *state* as a column they answer counts alone: SQLite does not infer it from the condition.
    CREATE INDEX jobs_waiting ON jobs (class, queued_at, state) WHERE state = 'queued';
    CREATE INDEX jobs_active ON jobs (account, environment, class, state) WHERE state IN ('queued', 'processing');
    CREATE INDEX jobs_leased ON jobs (lease_until) WHERE state = 'processing';
    CREATE INDEX jobs_listed ON jobs (account, environment, created_at, id);
    CREATE INDEX jobs_spent ON jobs (id) WHERE finished_at IS NOT NULL AND blob IS NOT NULL;
    CREATE INDEX jobs_expiring ON jobs (expires_at) WHERE expires_at IS NOT NULL;
    CREATE INDEX jobs_passing ON jobs (id) WHERE kept = 0 AND erased_at IS NULL AND finished_at IS NOT NULL;

    CREATE TABLE metadata (               -- of the job's options, once more to be searched
        job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (job, key)
    ) WITHOUT ROWID;

    CREATE TABLE artifacts (
        job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        kind TEXT NOT NULL,
        blob TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        bytes INTEGER NOT NULL,
        PRIMARY KEY (job, kind)
    ) WITHOUT ROWID;
    CREATE TABLE idempotency (
        account TEXT NOT NULL,
        path TEXT NOT NULL,
        key TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        job TEXT REFERENCES jobs (id) ON DELETE CASCADE,  -- NULL while the request arrives
        boot TEXT NOT NULL,                               -- the process that takes it in
        created_at INTEGER NOT NULL,
        PRIMARY KEY (account, path, key)
    ) WITHOUT ROWID;
    CREATE INDEX idempotency_age ON idempotency (created_at);
    CREATE INDEX idempotency_job ON idempotency (job);

    -- The queue's fairness: the virtual time each account has spent; account '' is the last claimed job's.
    CREATE TABLE fairness (
        account TEXT PRIMARY KEY,
        virtual_time REAL NOT NULL
    ) WITHOUT ROWID;

    -- One row per job that ended. Outlives the job: it is what the account used.
    CREATE TABLE usage (
        job TEXT PRIMARY KEY,
        account TEXT NOT NULL,
        environment TEXT NOT NULL,
        state TEXT NOT NULL,
        audio_s REAL NOT NULL,
        model TEXT,
        finished_at INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX usage_account ON usage (account, finished_at);
    CREATE INDEX usage_age ON usage (finished_at);

    CREATE TABLE counters (
        subject TEXT NOT NULL,
        name TEXT NOT NULL,
        "window" TEXT NOT NULL,
        used INTEGER NOT NULL,
        resets_at INTEGER NOT NULL,
        PRIMARY KEY (subject, name, "window")
    ) WITHOUT ROWID;
    CREATE INDEX counters_age ON counters (resets_at);

    CREATE TABLE deliveries (
        id TEXT PRIMARY KEY,
        webhook_id TEXT NOT NULL,
        job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        account TEXT NOT NULL,
        environment TEXT NOT NULL,
        event TEXT NOT NULL,
        url TEXT NOT NULL,
        host TEXT NOT NULL,               -- of the url, with its port: what is spared from crowds
        state TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        next_at INTEGER,
        tried INTEGER NOT NULL DEFAULT 0,
        UNIQUE (job, event, url)
    ) WITHOUT ROWID;
    CREATE INDEX deliveries_due ON deliveries (next_at) WHERE state = 'pending';
    CREATE INDEX deliveries_address ON deliveries (account, url) WHERE state = 'pending';

    CREATE TABLE attempts (
        delivery TEXT NOT NULL REFERENCES deliveries (id) ON DELETE CASCADE,
        n INTEGER NOT NULL,
        at INTEGER NOT NULL,
        status_code INTEGER,
        duration_ms INTEGER NOT NULL,
        error TEXT,
        next_attempt_at INTEGER,
        PRIMARY KEY (delivery, n)
    ) WITHOUT ROWID;

    CREATE TABLE addresses (
        account TEXT NOT NULL,
        url TEXT NOT NULL,
        exhausted INTEGER NOT NULL DEFAULT 0,  -- deliveries in a row whose attempts were used up
        disabled_at INTEGER,
        reason TEXT,
        changed_at INTEGER NOT NULL,
        PRIMARY KEY (account, url)
    ) WITHOUT ROWID;
    CREATE INDEX addresses_age ON addresses (changed_at);

    CREATE TABLE accounts (
        id TEXT PRIMARY KEY,
        plan TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        limits TEXT NOT NULL,
        webhook_secret TEXT NOT NULL,
        sandbox_webhook_secret TEXT       -- of older accounts it is derived from the other one
    ) WITHOUT ROWID;

    CREATE TABLE keys (
        id TEXT PRIMARY KEY,
        account TEXT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        environment TEXT NOT NULL,
        name TEXT,
        hash BLOB NOT NULL UNIQUE,
        prefix TEXT NOT NULL,
        last4 TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        last_used_at INTEGER,
        expires_at INTEGER,
        revoked_at INTEGER,
        retention TEXT                    -- of jobs that are ordered with it
    ) WITHOUT ROWID;
    CREATE INDEX keys_account ON keys (account, created_at);

    -- What was erased of which job and why. It outlives the job.
    CREATE TABLE erasures (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        job TEXT NOT NULL,
        at INTEGER NOT NULL,
        what TEXT NOT NULL,
        why TEXT NOT NULL
    );
    CREATE INDEX erasures_job ON erasures (job);

    -- Lasting addresses that show the newest live session of their name.
    CREATE TABLE channels (
        id TEXT PRIMARY KEY,
        account TEXT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        environment TEXT NOT NULL,
        name TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        job TEXT,                         -- not a reference: a deleted session is simply shown no more
        UNIQUE (account, environment, name)
    ) WITHOUT ROWID;
"""

TIMELINE = """
    -- What was said, and all that happened to the job, in order: pipeline/timeline.py.
    CREATE TABLE timeline (
        job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,             -- of the last event that readers get of the entries up to this one
        number INTEGER NOT NULL,          -- of the entry
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,               -- the tag of the entry, as in *body*
        body BLOB NOT NULL,
        PRIMARY KEY (job, seq, number)
    ) WITHOUT ROWID;

    -- The words of finished transcripts: listing.py.
    CREATE TABLE terms (
        account TEXT NOT NULL,
        environment TEXT NOT NULL,
        term TEXT NOT NULL,
        job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        PRIMARY KEY (account, environment, term, job)
    ) WITHOUT ROWID;
    CREATE INDEX terms_job ON terms (job);
"""

NEWEST = TABLES + TIMELINE
"""All tables, as a new database gets them."""

COLUMNS = """
    ALTER TABLE jobs ADD COLUMN last_entry INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN stuck INTEGER NOT NULL DEFAULT 0;
    UPDATE jobs SET stuck = attempt;
    ALTER TABLE addresses DROP COLUMN failures;
    ALTER TABLE addresses DROP COLUMN failing_since;
    DROP INDEX jobs_queue;
    CREATE INDEX jobs_queue ON jobs (
        class, (blob IS NULL AND source_type = 'url'), environment, virtual_time, id
    ) WHERE state = 'queued';
"""

TO_TIMELINE = COLUMNS + TIMELINE
"""The step from the schema before, which had events and chunks. migrate_0_1.py makes timelines of them."""

AFTER_TAKEOVER = """
    DROP TABLE chunks;
    DROP TABLE events;
"""
