-- The tables of version 0.1 in PostgreSQL.
CREATE TABLE IF NOT EXISTS schema_versions (
        version BIGINT PRIMARY KEY,
        additive BOOLEAN NOT NULL
    );
CREATE TABLE jobs (
        id TEXT COLLATE "C" PRIMARY KEY,
        account TEXT COLLATE "C" NOT NULL,
        environment TEXT COLLATE "C" NOT NULL,
        class BIGINT NOT NULL,
        state TEXT COLLATE "C" NOT NULL,
        options TEXT COLLATE "C" NOT NULL,
        source TEXT COLLATE "C" NOT NULL, source_type TEXT COLLATE "C" GENERATED ALWAYS AS (source::json ->> 'type') STORED,
        blob TEXT COLLATE "C",
        quotas TEXT COLLATE "C" NOT NULL,
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
        lease_id TEXT COLLATE "C",
        owner TEXT COLLATE "C",
        lease_until BIGINT,
        last_seq BIGINT NOT NULL DEFAULT 0,
        progress DOUBLE PRECISION NOT NULL DEFAULT 0,
        stage TEXT COLLATE "C",
        duration_s DOUBLE PRECISION,
        language TEXT COLLATE "C",
        language_probability DOUBLE PRECISION,
        engine TEXT COLLATE "C",
        model TEXT COLLATE "C",
        text TEXT COLLATE "C",
        last_error TEXT COLLATE "C",
        error TEXT COLLATE "C",
        warnings TEXT COLLATE "C" NOT NULL,
        kept BIGINT NOT NULL
    );
    CREATE INDEX jobs_queue ON jobs (
        class, (blob IS NULL AND source_type = 'url'), environment, virtual_time, id
    ) WHERE state = 'queued';
    CREATE INDEX jobs_waiting ON jobs (class, queued_at, state) WHERE state = 'queued';
    CREATE INDEX jobs_active ON jobs (account, environment, class, state) WHERE state IN ('queued', 'processing');
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
        blob TEXT COLLATE "C" NOT NULL,
        sha256 TEXT COLLATE "C" NOT NULL,
        bytes BIGINT NOT NULL,
        PRIMARY KEY (job, kind)
    );
    CREATE TABLE events (
        stream TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        seq BIGINT NOT NULL,
        at BIGINT NOT NULL,
        type TEXT COLLATE "C" NOT NULL,
        body BYTEA NOT NULL,
        PRIMARY KEY (stream, seq)
    );
    CREATE TABLE idempotency (
        account TEXT COLLATE "C" NOT NULL,
        path TEXT COLLATE "C" NOT NULL,
        key TEXT COLLATE "C" NOT NULL,
        fingerprint TEXT COLLATE "C" NOT NULL,
        job TEXT COLLATE "C" REFERENCES jobs (id) ON DELETE CASCADE,
        boot TEXT COLLATE "C" NOT NULL,
        created_at BIGINT NOT NULL,
        PRIMARY KEY (account, path, key)
    );
    CREATE INDEX idempotency_age ON idempotency (created_at);
    CREATE INDEX idempotency_job ON idempotency (job);
    CREATE TABLE fairness (
        account TEXT COLLATE "C" PRIMARY KEY,
        virtual_time DOUBLE PRECISION NOT NULL
    );
    CREATE TABLE usage (
        job TEXT COLLATE "C" PRIMARY KEY,
        account TEXT COLLATE "C" NOT NULL,
        environment TEXT COLLATE "C" NOT NULL,
        state TEXT COLLATE "C" NOT NULL,
        audio_s DOUBLE PRECISION NOT NULL,
        model TEXT COLLATE "C",
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
    );
    CREATE INDEX counters_age ON counters (resets_at);
    CREATE TABLE deliveries (
        id TEXT COLLATE "C" PRIMARY KEY,
        webhook_id TEXT COLLATE "C" NOT NULL,
        job TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        account TEXT COLLATE "C" NOT NULL,
        environment TEXT COLLATE "C" NOT NULL,
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
    CREATE INDEX deliveries_lines ON deliveries (account, next_at, id, host) WHERE state = 'pending';
    CREATE INDEX deliveries_hosts ON deliveries (account, host, next_at) WHERE state = 'pending';
    CREATE TABLE attempts (
        delivery TEXT COLLATE "C" NOT NULL REFERENCES deliveries (id) ON DELETE CASCADE,
        n BIGINT NOT NULL,
        at BIGINT NOT NULL,
        status_code BIGINT,
        duration_ms BIGINT NOT NULL,
        error TEXT COLLATE "C",
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
        reason TEXT COLLATE "C",
        changed_at BIGINT NOT NULL,
        PRIMARY KEY (account, url)
    );
    CREATE INDEX addresses_age ON addresses (changed_at);
    CREATE TABLE accounts (
        id TEXT COLLATE "C" PRIMARY KEY,
        plan TEXT COLLATE "C" NOT NULL,
        created_at BIGINT NOT NULL,
        limits TEXT COLLATE "C" NOT NULL,
        webhook_secret TEXT COLLATE "C" NOT NULL
    );
    CREATE TABLE keys (
        id TEXT COLLATE "C" PRIMARY KEY,
        account TEXT COLLATE "C" NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        environment TEXT COLLATE "C" NOT NULL,
        name TEXT COLLATE "C",
        hash BYTEA NOT NULL UNIQUE,
        prefix TEXT COLLATE "C" NOT NULL,
        last4 TEXT COLLATE "C" NOT NULL,
        created_at BIGINT NOT NULL,
        last_used_at BIGINT,
        expires_at BIGINT,
        revoked_at BIGINT,
        retention TEXT COLLATE "C"
    );
    CREATE INDEX keys_account ON keys (account, created_at);
    CREATE TABLE erasures (
        number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        job TEXT COLLATE "C" NOT NULL,
        at BIGINT NOT NULL,
        what TEXT COLLATE "C" NOT NULL,
        why TEXT COLLATE "C" NOT NULL
    );
    CREATE INDEX erasures_job ON erasures (job);
    ALTER TABLE jobs SET (fillfactor = 80);
    ALTER TABLE fairness SET (fillfactor = 50);
    ALTER TABLE counters SET (fillfactor = 50);
    CREATE TABLE commits (
        id TEXT COLLATE "C" PRIMARY KEY,
        at BIGINT NOT NULL
    );
    CREATE INDEX commits_age ON commits (at);
    CREATE TABLE nodes (
        boot TEXT COLLATE "C" PRIMARY KEY,
        name TEXT COLLATE "C" NOT NULL,
        seen_at BIGINT NOT NULL
    );
    CREATE TABLE secrets (
        kid TEXT COLLATE "C" PRIMARY KEY,
        secret BYTEA NOT NULL,
        created_at BIGINT NOT NULL
    );
INSERT INTO schema_versions VALUES (1, true);
    CREATE TABLE channels (
        id TEXT COLLATE "C" PRIMARY KEY,
        account TEXT COLLATE "C" NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        environment TEXT COLLATE "C" NOT NULL,
        name TEXT COLLATE "C" NOT NULL,
        created_at BIGINT NOT NULL,
        job TEXT COLLATE "C",
        UNIQUE (account, environment, name)
    );
INSERT INTO schema_versions VALUES (2, true);
CREATE UNLOGGED TABLE rates (
        subject TEXT COLLATE "C" PRIMARY KEY,
        seconds TEXT COLLATE "C" NOT NULL,
        at BIGINT NOT NULL
    ) WITH (fillfactor = 50);
INSERT INTO schema_versions VALUES (3, true);
CREATE TABLE offers (
        environment TEXT COLLATE "C" PRIMARY KEY,
        offer TEXT COLLATE "C" NOT NULL
    );
INSERT INTO schema_versions VALUES (4, true);
    ALTER TABLE accounts ADD COLUMN sandbox_webhook_secret TEXT COLLATE "C";
INSERT INTO schema_versions VALUES (5, true);
    ALTER TABLE jobs ADD COLUMN speakers TEXT COLLATE "C";
INSERT INTO schema_versions VALUES (6, true);
    DROP INDEX deliveries_lines;
    DROP INDEX deliveries_hosts;
INSERT INTO schema_versions VALUES (7, true);
    ALTER TABLE jobs ADD COLUMN languages TEXT COLLATE "C";
INSERT INTO schema_versions VALUES (8, true);
