"""The tables in PostgreSQL, as sqlite/schema.py has them for SQLite. A change is a new Migration at the end.

Text that is compared or sorted is in collation "C", so that it is sorted by bytes as in SQLite. Only `commits`,
`nodes`, `offers`, `rates`, `secrets` and the columns that are generated exist here alone.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Migration:
    """A step forward. Programs of an older version go on working on a schema whose newer steps are all *additive*."""

    script: str
    additive: bool = True


FIRST = """
    CREATE TABLE jobs (
        id TEXT COLLATE "C" PRIMARY KEY,
        account TEXT COLLATE "C" NOT NULL,
        environment TEXT COLLATE "C" NOT NULL,
        class BIGINT NOT NULL,            -- 0: live, 1: batch
        state TEXT COLLATE "C" NOT NULL,
        options TEXT NOT NULL,
        source TEXT NOT NULL,
        source_type TEXT COLLATE "C" GENERATED ALWAYS AS (source::json ->> 'type') STORED,
        blob TEXT,
        quotas TEXT NOT NULL,
        retention_ms BIGINT NOT NULL,
        virtual_time DOUBLE PRECISION NOT NULL,
        weight DOUBLE PRECISION NOT NULL,
        counted_s DOUBLE PRECISION NOT NULL,
        created_at BIGINT NOT NULL,
        queued_at BIGINT NOT NULL,
        run_after BIGINT NOT NULL,
        claimed_at BIGINT,
        started_at BIGINT,
        finished_at BIGINT,
        answered_at BIGINT,
        erased_at BIGINT,
        expires_at BIGINT,
        cancel_requested_at BIGINT,
        attempt BIGINT NOT NULL DEFAULT 0,
        epoch BIGINT NOT NULL DEFAULT 0,
        lease_id TEXT,
        owner TEXT,
        lease_until BIGINT,
        last_seq BIGINT NOT NULL DEFAULT 0,
        progress DOUBLE PRECISION NOT NULL DEFAULT 0,
        stage TEXT,
        duration_s DOUBLE PRECISION,
        language TEXT,
        language_probability DOUBLE PRECISION,
        engine TEXT,
        model TEXT,
        text TEXT,
        last_error TEXT,
        error TEXT,
        warnings TEXT NOT NULL,
        kept BIGINT NOT NULL
    ) WITH (fillfactor = 80);             -- leases are renewed in place
    CREATE INDEX jobs_queue ON jobs (class, (blob IS NULL AND source_type = 'url'), environment, virtual_time, id)
        WHERE state = 'queued';
    CREATE INDEX jobs_waiting ON jobs (class, queued_at) WHERE state = 'queued';
    CREATE INDEX jobs_active ON jobs (account, environment, class) WHERE state IN ('queued', 'processing');
    CREATE INDEX jobs_leased ON jobs (lease_until) WHERE state = 'processing';
    CREATE INDEX jobs_listed ON jobs (account, environment, created_at, id);
    CREATE INDEX jobs_spent ON jobs (id) WHERE finished_at IS NOT NULL AND blob IS NOT NULL;
    CREATE INDEX jobs_expiring ON jobs (expires_at) WHERE expires_at IS NOT NULL;
    CREATE INDEX jobs_passing ON jobs (id) WHERE kept = 0 AND erased_at IS NULL AND finished_at IS NOT NULL;

    CREATE TABLE metadata (
        job TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        key TEXT COLLATE "C" NOT NULL,
        value TEXT COLLATE "C" NOT NULL,
        PRIMARY KEY (job, key)
    );

    CREATE TABLE chunks (
        job TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        idx BIGINT NOT NULL,
        epoch BIGINT NOT NULL,
        body BYTEA NOT NULL,
        PRIMARY KEY (job, idx)
    );

    CREATE TABLE artifacts (
        job TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        kind TEXT COLLATE "C" NOT NULL,
        blob TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        bytes BIGINT NOT NULL,
        PRIMARY KEY (job, kind)
    );

    CREATE TABLE events (
        stream TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        seq BIGINT NOT NULL,
        at BIGINT NOT NULL,
        type TEXT NOT NULL,
        body BYTEA NOT NULL,
        PRIMARY KEY (stream, seq)
    );

    CREATE TABLE idempotency (
        account TEXT COLLATE "C" NOT NULL,
        path TEXT COLLATE "C" NOT NULL,
        key TEXT COLLATE "C" NOT NULL,
        fingerprint TEXT NOT NULL,
        job TEXT COLLATE "C" REFERENCES jobs (id) ON DELETE CASCADE,
        boot TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        PRIMARY KEY (account, path, key)
    );
    CREATE INDEX idempotency_age ON idempotency (created_at);
    CREATE INDEX idempotency_job ON idempotency (job);

    CREATE TABLE fairness (
        account TEXT COLLATE "C" PRIMARY KEY,
        virtual_time DOUBLE PRECISION NOT NULL
    ) WITH (fillfactor = 50);

    CREATE TABLE usage (
        job TEXT COLLATE "C" PRIMARY KEY,
        account TEXT COLLATE "C" NOT NULL,
        environment TEXT NOT NULL,
        state TEXT NOT NULL,
        audio_s DOUBLE PRECISION NOT NULL,
        model TEXT,
        finished_at BIGINT NOT NULL
    );
    CREATE INDEX usage_account ON usage (account, finished_at);
    CREATE INDEX usage_age ON usage (finished_at);

    CREATE TABLE counters (
        subject TEXT COLLATE "C" NOT NULL,
        name TEXT COLLATE "C" NOT NULL,
        "window" TEXT COLLATE "C" NOT NULL,
        used BIGINT NOT NULL,
        resets_at BIGINT NOT NULL,
        PRIMARY KEY (subject, name, "window")
    ) WITH (fillfactor = 50);
    CREATE INDEX counters_age ON counters (resets_at);

    CREATE TABLE deliveries (
        id TEXT COLLATE "C" PRIMARY KEY,
        webhook_id TEXT NOT NULL,
        job TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        account TEXT COLLATE "C" NOT NULL,
        environment TEXT NOT NULL,
        event TEXT COLLATE "C" NOT NULL,
        url TEXT COLLATE "C" NOT NULL,
        host TEXT COLLATE "C" NOT NULL,
        state TEXT COLLATE "C" NOT NULL,
        created_at BIGINT NOT NULL,
        next_at BIGINT,
        tried BIGINT NOT NULL DEFAULT 0,
        UNIQUE (job, event, url)
    );
    CREATE INDEX deliveries_due ON deliveries (next_at) WHERE state = 'pending';
    CREATE INDEX deliveries_address ON deliveries (account, url) WHERE state = 'pending';
    CREATE INDEX deliveries_lines ON deliveries (account, next_at, id) WHERE state = 'pending';
    CREATE INDEX deliveries_hosts ON deliveries (account, host, next_at) WHERE state = 'pending';

    CREATE TABLE attempts (
        delivery TEXT COLLATE "C" NOT NULL REFERENCES deliveries (id) ON DELETE CASCADE,
        n BIGINT NOT NULL,
        at BIGINT NOT NULL,
        status_code BIGINT,
        duration_ms BIGINT NOT NULL,
        error TEXT,
        next_attempt_at BIGINT,
        PRIMARY KEY (delivery, n)
    );

    CREATE TABLE addresses (
        account TEXT COLLATE "C" NOT NULL,
        url TEXT COLLATE "C" NOT NULL,
        exhausted BIGINT NOT NULL DEFAULT 0,
        failures BIGINT NOT NULL DEFAULT 0,
        failing_since BIGINT,
        disabled_at BIGINT,
        reason TEXT,
        changed_at BIGINT NOT NULL,
        PRIMARY KEY (account, url)
    );
    CREATE INDEX addresses_age ON addresses (changed_at);

    CREATE TABLE accounts (
        id TEXT COLLATE "C" PRIMARY KEY,
        plan TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        limits TEXT NOT NULL,
        webhook_secret TEXT NOT NULL
    );

    CREATE TABLE keys (
        id TEXT COLLATE "C" PRIMARY KEY,
        account TEXT COLLATE "C" NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        environment TEXT NOT NULL,
        name TEXT,
        hash BYTEA NOT NULL UNIQUE,
        prefix TEXT NOT NULL,
        last4 TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        last_used_at BIGINT,
        expires_at BIGINT,
        revoked_at BIGINT,
        retention TEXT
    );
    CREATE INDEX keys_account ON keys (account, created_at);

    CREATE TABLE erasures (
        number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        job TEXT COLLATE "C" NOT NULL,
        at BIGINT NOT NULL,
        what TEXT NOT NULL,
        why TEXT NOT NULL
    );
    CREATE INDEX erasures_job ON erasures (job);

    CREATE TABLE commits (                -- of the last hour: tells whether a transaction was committed
        id TEXT COLLATE "C" PRIMARY KEY,
        at BIGINT NOT NULL
    );
    CREATE INDEX commits_age ON commits (at);

    CREATE TABLE nodes (                  -- processes that have this database open
        boot TEXT COLLATE "C" PRIMARY KEY,
        name TEXT NOT NULL,
        seen_at BIGINT NOT NULL
    );

    CREATE TABLE secrets (                -- sign links and tokens
        kid TEXT COLLATE "C" PRIMARY KEY,
        secret BYTEA NOT NULL,
        created_at BIGINT NOT NULL
    );
"""

CHANNELS = """
    -- Lasting addresses that show the newest live session of their name.
    CREATE TABLE channels (
        id TEXT COLLATE "C" PRIMARY KEY,
        account TEXT COLLATE "C" NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        environment TEXT COLLATE "C" NOT NULL,
        name TEXT COLLATE "C" NOT NULL,
        created_at BIGINT NOT NULL,
        job TEXT COLLATE "C",             -- not a reference: a deleted session is simply shown no more
        UNIQUE (account, environment, name)
    );
"""

RATES = """
    CREATE UNLOGGED TABLE rates (         -- requests of the last minute
        subject TEXT COLLATE "C" PRIMARY KEY,
        seconds TEXT NOT NULL,
        at BIGINT NOT NULL
    ) WITH (fillfactor = 50);
"""

OFFERS = """
    CREATE TABLE offers (                 -- of the node with a model that was the last to start
        environment TEXT COLLATE "C" PRIMARY KEY,
        offer TEXT NOT NULL
    );
"""

SANDBOX_SECRETS = """
    -- Signs the sandbox's webhooks. Accounts that are older have none here: theirs is derived from the other one.
    ALTER TABLE accounts ADD COLUMN sandbox_webhook_secret TEXT;
"""

SPEAKERS = """
    -- Who speaks for how long in a job whose speakers are told apart by their voices, as JSON.
    ALTER TABLE jobs ADD COLUMN speakers TEXT;
"""

MIGRATIONS = (
    Migration(FIRST),
    Migration(CHANNELS),
    Migration(RATES),
    Migration(OFFERS),
    Migration(SANDBOX_SECRETS),
    Migration(SPEAKERS),
)
