"""The tables. A change is a new script at the end of MIGRATIONS; old ones never change.

Instants are milliseconds since 1970 UTC, `class` is 0 for live jobs and 1 for batch jobs, JSON is text. Tables with
long rows (jobs, chunks) have a rowid: without one, long rows would lie in the search tree's inner pages.
"""

MIGRATIONS = (
    """
    -- Who must be woken by a commit, also in other processes. A topic is a job's id, 'queue', 'outbox', 'accounts', or
    -- 'use of' somebody.
    CREATE TABLE changes (
        revision INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice, so a reader's mark stays good after a purge
        topic TEXT NOT NULL UNIQUE,
        at INTEGER NOT NULL
    );
    CREATE INDEX changes_at ON changes (at);

    CREATE TABLE jobs (
        id TEXT PRIMARY KEY,
        account TEXT NOT NULL,
        environment TEXT NOT NULL,
        class INTEGER NOT NULL,
        state TEXT NOT NULL,
        options TEXT NOT NULL,
        source TEXT NOT NULL,
        blob TEXT,
        quotas TEXT NOT NULL,             -- what acceptance took: [{"name", "window", "amount"}]
        retention_ms INTEGER NOT NULL,
        virtual_time REAL NOT NULL,
        created_at INTEGER NOT NULL,
        queued_at INTEGER NOT NULL,       -- when it last entered the queue
        run_after INTEGER NOT NULL,
        started_at INTEGER,
        finished_at INTEGER,
        expires_at INTEGER,
        cancel_requested_at INTEGER,
        attempt INTEGER NOT NULL DEFAULT 0,
        epoch INTEGER NOT NULL DEFAULT 0,
        lease_id TEXT,
        owner TEXT,
        lease_until INTEGER,
        last_seq INTEGER NOT NULL DEFAULT 0,
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
        warnings TEXT NOT NULL
    );
    CREATE INDEX jobs_queue ON jobs (class, virtual_time, id) WHERE state = 'queued';
    -- With *state* as a column they answer counts alone: SQLite does not infer it from the condition.
    CREATE INDEX jobs_waiting ON jobs (class, queued_at, state) WHERE state = 'queued';
    CREATE INDEX jobs_active ON jobs (account, environment, class, state) WHERE state IN ('queued', 'processing');
    CREATE INDEX jobs_leased ON jobs (lease_until) WHERE state = 'processing';
    CREATE INDEX jobs_listed ON jobs (account, environment, created_at, id);
    CREATE INDEX jobs_spent ON jobs (id) WHERE finished_at IS NOT NULL AND blob IS NOT NULL;
    CREATE INDEX jobs_expiring ON jobs (expires_at) WHERE expires_at IS NOT NULL;

    CREATE TABLE metadata (                -- of the job's options, once more to be searched
        job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (job, key)
    ) WITHOUT ROWID;

    CREATE TABLE chunks (
        job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        idx INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (job, idx)
    );

    CREATE TABLE artifacts (
        job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        kind TEXT NOT NULL,
        blob TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        bytes INTEGER NOT NULL,
        PRIMARY KEY (job, kind)
    ) WITHOUT ROWID;

    CREATE TABLE events (
        stream TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        at INTEGER NOT NULL,
        type TEXT NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (stream, seq)
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

    CREATE TABLE counters (
        subject TEXT NOT NULL,
        name TEXT NOT NULL,
        window TEXT NOT NULL,
        used INTEGER NOT NULL,
        resets_at INTEGER NOT NULL,
        PRIMARY KEY (subject, name, window)
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
        PRIMARY KEY (account, url)
    ) WITHOUT ROWID;

    CREATE TABLE accounts (
        id TEXT PRIMARY KEY,
        plan TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        limits TEXT NOT NULL,
        webhook_secret TEXT NOT NULL
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
        revoked_at INTEGER
    ) WITHOUT ROWID;
    CREATE INDEX keys_account ON keys (account, created_at);
    """,
    """
    -- What a job's turn costs its account: *counted_s* when it was queued, more once it turns out to take longer.
    ALTER TABLE jobs ADD COLUMN weight REAL NOT NULL DEFAULT 1;
    ALTER TABLE jobs ADD COLUMN counted_s REAL NOT NULL DEFAULT 1;
    ALTER TABLE jobs ADD COLUMN claimed_at INTEGER;
    UPDATE jobs SET counted_s = max(1, coalesce(duration_s, 300)), claimed_at = started_at;
    UPDATE jobs SET quotas = '[]' WHERE quotas LIKE '%"amount":-%';  -- of files that stated a negative length

    -- Downloads and transcriptions are claimed apart, and each environment by itself.
    DROP INDEX jobs_queue;
    CREATE INDEX jobs_queue ON jobs (
        class, (blob IS NULL AND json_extract(source, '$.type') = 'url'), environment, virtual_time, id
    ) WHERE state = 'queued';
    """,
    """
    -- Due deliveries are looked up account by account, the oldest first.
    CREATE INDEX deliveries_lines ON deliveries (account, next_at, id, host) WHERE state = 'pending';
    CREATE INDEX deliveries_hosts ON deliveries (account, host, next_at) WHERE state = 'pending';
    ALTER TABLE addresses ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;  -- failed attempts since failing_since
    ALTER TABLE addresses ADD COLUMN failing_since INTEGER;
    ALTER TABLE addresses ADD COLUMN changed_at INTEGER NOT NULL DEFAULT 0;
    UPDATE addresses SET changed_at = CAST(strftime('%s', 'now') AS INTEGER) * 1000;
    CREATE INDEX addresses_age ON addresses (changed_at);
    CREATE INDEX usage_age ON usage (finished_at);

    -- What was erased of which job and why. It outlives the job.
    CREATE TABLE erasures (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        job TEXT NOT NULL,
        at INTEGER NOT NULL,
        what TEXT NOT NULL,
        why TEXT NOT NULL
    );
    CREATE INDEX erasures_job ON erasures (job);

    -- Jobs whose results are handed over once (kept = 0), and keys that order so.
    ALTER TABLE jobs ADD COLUMN kept INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE jobs ADD COLUMN answered_at INTEGER;
    ALTER TABLE jobs ADD COLUMN erased_at INTEGER;
    CREATE INDEX jobs_passing ON jobs (id) WHERE kept = 0 AND erased_at IS NULL AND finished_at IS NOT NULL;
    ALTER TABLE keys ADD COLUMN retention TEXT;
    """,
    """
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
    """,
    """
    -- Signs the sandbox's webhooks. Accounts that are older have none here: theirs is derived from the other one.
    ALTER TABLE accounts ADD COLUMN sandbox_webhook_secret TEXT;
    """,
    """
    -- Who speaks for how long in a job whose speakers are told apart by their voices, as JSON.
    ALTER TABLE jobs ADD COLUMN speakers TEXT;
    """,
)
