-- The results database of orch. This file is the one source: it creates the
-- database on SQLite (3.35 or newer) and on PostgreSQL (15 or newer) unchanged.
--
-- Conventions: *_bytes are bytes, *_s are seconds, *_ns are nanoseconds, *_gbps are
-- 10^9 bytes per second, *_share is a fraction of 1, *_at is ISO-8601 in UTC. "heartbeat" is
-- seconds since 1970 on the database's clock. NULL means "not measured" or, for an axis
-- of a job, "inactive". A NaN is stored as NULL and named in "nonfinite".

CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL PRIMARY KEY
);

-- Ids are handed out from here by UPDATE ... RETURNING.
CREATE TABLE counter (
    name TEXT NOT NULL PRIMARY KEY,         -- the table whose ids these are
    next_id BIGINT NOT NULL                 -- the id that the next row gets
);

CREATE TABLE sweep (
    sweep_id INTEGER NOT NULL PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE,               -- survives merging of databases
    name TEXT NOT NULL UNIQUE,              -- the same name continues the sweep
    spec TEXT NOT NULL,                     -- the sweep file as last run, as text
    spec_path TEXT,                         -- where that file lay
    engine TEXT,                            -- local, slurm or ray, as last run
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    cancel_requested BOOLEAN NOT NULL,      -- set by "orch cancel", cleared when the sweep is started
    owner TEXT                              -- host:pid of the orch that runs it now, else NULL
);

CREATE TABLE job (
    job_id INTEGER NOT NULL PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE,
    sweep_id INTEGER NOT NULL REFERENCES sweep (sweep_id),
    cell TEXT NOT NULL,                     -- v1:<sha256> of the resolved axes
    repeat INTEGER NOT NULL,                -- 1, 2, ...
    position INTEGER NOT NULL,              -- place in the running order
    status TEXT NOT NULL,                   -- pending running ok failed timeout oom_gpu oom_host cancelled lost skipped
    reason TEXT,                            -- why it is skipped or how it failed, one line
    in_spec BOOLEAN NOT NULL,               -- FALSE: the sweep file no longer asks for it
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    -- the axes; NULL = inactive
    included_state TEXT,                    -- all, or state names joined by "+"
    pin_memory BOOLEAN,
    pin_memory_then BOOLEAN,                -- pin_memory from the second iteration on
    non_blocking BOOLEAN,
    reload_non_blocking BOOLEAN,
    model TEXT,                             -- linear, transformer, a named shape, or pkg.mod:factory
    nlayers INTEGER,
    hidden_dim INTEGER,
    ffn_dim INTEGER,
    num_heads INTEGER,
    vocab_size INTEGER,
    tied_embeddings BOOLEAN,
    seq_len INTEGER,
    micro_batch INTEGER,
    dtype TEXT,                             -- bfloat16 float16 float32
    zero_stage INTEGER,
    optimizer TEXT,                         -- adam (FusedAdam) or torch_adam
    param_groups INTEGER,
    frozen_fraction DOUBLE PRECISION,       -- fraction of the layers that do not train
    num_gpus INTEGER,                       -- ranks on each node
    num_nodes INTEGER,
    iteration INTEGER,                      -- measured loop length, warm-up included
    warmup INTEGER,                         -- leading iterations kept out of the medians
    instrumented INTEGER,                   -- further iterations that split the time, kept out of the medians
    gc_freeze BOOLEAN,
    pin_backend TEXT,                       -- default, host_register[:threads], exact
    numa TEXT,                              -- none, device, or a node number
    dwell_s DOUBLE PRECISION,               -- time spent offloaded
    hold_bytes BIGINT,                      -- held by another process while offloaded
    contention INTEGER,                     -- copies of the job at once
    checksums BOOLEAN,                      -- FALSE only to measure what they cost
    sampler_hz DOUBLE PRECISION,            -- 0 = no sampler
    ds TEXT,                                -- JSON: DeepSpeed config overrides of this cell
    env TEXT,                               -- JSON: environment variables of this cell
    -- what the byte formula expects, for the fullest rank
    parameters_total BIGINT,                -- model parameters, all ranks together
    predicted_gpu_bytes BIGINT,             -- device memory at the peak of a step
    predicted_freed_bytes BIGINT,
    predicted_copied_bytes BIGINT,
    predicted_pinned_bytes BIGINT,          -- pinned host memory after rounding, 0 if nothing is pinned
    UNIQUE (sweep_id, cell, repeat)
);
-- Pilots claim the first pending job: position is in the index so that this stays flat.
CREATE INDEX job_status ON job (sweep_id, status, position);

CREATE TABLE environment (
    environment_id INTEGER NOT NULL PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE,               -- sha256 of every other column that describes the stack
    host TEXT NOT NULL,
    kernel TEXT,
    os TEXT,
    python TEXT,
    torch TEXT,
    cuda TEXT,                              -- CUDA version torch was built for
    nccl TEXT,
    deepspeed TEXT,
    orch TEXT,
    driver TEXT,
    accelerator TEXT,                       -- cuda or cpu
    gpu_name TEXT,
    gpu_count INTEGER,
    gpu_bytes BIGINT,
    pcie_generation INTEGER,
    pcie_width INTEGER,
    cpu_name TEXT,
    cpu_count INTEGER,
    ram_bytes BIGINT,
    numa_nodes INTEGER,
    variables TEXT,                         -- JSON: allowed environment variables, secrets masked
    packages TEXT,                          -- JSON: versions of the other packages that matter
    created_at TEXT NOT NULL
);

CREATE TABLE attempt (
    attempt_id INTEGER NOT NULL PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE,
    job_id INTEGER NOT NULL REFERENCES job (job_id),
    number INTEGER NOT NULL,                -- 1, 2, ... within the job
    status TEXT NOT NULL,                   -- as job, without pending and skipped
    failure_kind TEXT,                      -- under failed: no_result killed exception states_changed wrong_device unsupported port jit_build hang fork_unsafe
    message TEXT,                           -- one line
    engine TEXT NOT NULL,
    engine_job TEXT,                        -- Slurm job id, Ray placement group, else NULL
    launcher TEXT NOT NULL,                 -- asked for
    launch_mode TEXT,                       -- used: fork, spawn or deepspeed
    launch_note TEXT,                       -- why it differs
    host TEXT,                              -- node 0
    hosts TEXT,                             -- JSON: one name a node
    device_uuids TEXT,                      -- JSON: one a rank
    port INTEGER,
    run_dir TEXT NOT NULL,
    environment_id INTEGER REFERENCES environment (environment_id),
    ds_config TEXT,                         -- JSON: the DeepSpeed config as resolved
    ds_config_sha256 TEXT,
    alloc_conf TEXT,                        -- allocator settings read back in the rank
    tracked_objects INTEGER,                -- objects Python's collector tracks before the loop, rank 0
    numa_bound TEXT,                        -- NUMA node each rank was bound to, JSON
    created_at TEXT NOT NULL,
    started_at TEXT,                        -- first rank started
    timed_from_at TEXT,                     -- first timed operation
    timed_to_at TEXT,                       -- last timed operation done
    ended_at TEXT,
    wait_s DOUBLE PRECISION,                -- waited for the host's timed section
    wall_s DOUBLE PRECISION,                -- from launch to the last rank's end, waiting left out
    loop_s DOUBLE PRECISION,                -- from first to last timed operation, slowest rank
    exit_status INTEGER,
    signal INTEGER,
    overlapped BOOLEAN,                     -- another process used the device or another timed section ran
    overlap_note TEXT,
    heartbeat DOUBLE PRECISION,
    owner TEXT,                             -- who supervises it: host:pid:start
    UNIQUE (job_id, number)
);
CREATE INDEX attempt_status ON attempt (status);

-- One row a rank of an attempt: where it ran and how far it came.
CREATE TABLE attempt_rank (
    attempt_id INTEGER NOT NULL REFERENCES attempt (attempt_id),
    rank INTEGER NOT NULL,
    host TEXT,
    pid INTEGER,
    device_uuid TEXT,
    launch_mode TEXT,                       -- used by this rank: fork, spawn, deepspeed or alone
    environment_id INTEGER REFERENCES environment (environment_id), -- of its host
    started_at TEXT,
    timed_from_at TEXT,                     -- its first timed operation
    timed_to_at TEXT,                       -- its last timed operation done
    loop_s DOUBLE PRECISION,                -- between the two, on its monotonic clock
    iterations INTEGER,                     -- delivered, as its final record says
    final_at TEXT,                          -- time of its final record; NULL = it never delivered one
    error_status TEXT,                      -- failed, oom_gpu, oom_host or skipped, as the rank itself said
    failure_kind TEXT,
    message TEXT,                           -- one line
    traceback TEXT,
    PRIMARY KEY (attempt_id, rank)
);

CREATE TABLE iteration (
    attempt_id INTEGER NOT NULL REFERENCES attempt (attempt_id),
    rank INTEGER NOT NULL,
    iteration INTEGER NOT NULL,             -- 0, 1, ...
    is_warmup BOOLEAN NOT NULL,
    is_cold BOOLEAN NOT NULL,               -- the first of the process
    is_instrumented BOOLEAN NOT NULL,       -- split times were taken: not in the medians
    started_s DOUBLE PRECISION,             -- since the rank's loop began
    step_s DOUBLE PRECISION,                -- forward, backward, optimizer step
    offload_s DOUBLE PRECISION,             -- until this rank's device is idle
    offload_host_s DOUBLE PRECISION,        -- until the call returned
    offload_all_s DOUBLE PRECISION,         -- until every rank was done
    reload_s DOUBLE PRECISION,
    reload_host_s DOUBLE PRECISION,
    reload_all_s DOUBLE PRECISION,
    freed_bytes BIGINT,                     -- allocated before minus after offload
    predicted_freed_bytes BIGINT,
    copied_bytes BIGINT,                    -- moved to the host, by the formula on the real tensors
    device_freed_bytes BIGINT,              -- gain in the device's own free memory
    bytes_match BOOLEAN,                    -- freed = predicted within max(1 MiB, 0.1 %); NULL where it does not apply
    states_intact BOOLEAN,                  -- checksums of all states equal before and after; NULL = not checked
    devices_ok BOOLEAN,                     -- every state where it belongs after offload and after reload
    allocated_before_bytes BIGINT,
    allocated_offloaded_bytes BIGINT,
    allocated_after_bytes BIGINT,
    reserved_before_bytes BIGINT,
    reserved_offloaded_bytes BIGINT,
    reserved_after_bytes BIGINT,
    peak_step_bytes BIGINT,
    peak_offload_bytes BIGINT,
    peak_reload_bytes BIGINT,
    pinned_bytes BIGINT,                    -- pinned host memory of the rank while offloaded, as rounded by torch
    pinning_s DOUBLE PRECISION,             -- spent pinning in this iteration
    rss_bytes BIGINT,                       -- while offloaded
    loss DOUBLE PRECISION,
    skipped_step BOOLEAN,                   -- fp16 skipped the optimizer step
    nonfinite TEXT,                         -- e.g. "loss=nan"
    offload_copy_s DOUBLE PRECISION,        -- the split, instrumented iterations only
    offload_gc_s DOUBLE PRECISION,
    offload_empty_cache_s DOUBLE PRECISION,
    offload_alloc_s DOUBLE PRECISION,
    offload_wait_s DOUBLE PRECISION,
    reload_copy_s DOUBLE PRECISION,
    reload_gc_s DOUBLE PRECISION,
    reload_empty_cache_s DOUBLE PRECISION,
    reload_alloc_s DOUBLE PRECISION,
    reload_wait_s DOUBLE PRECISION,
    state_split TEXT,                       -- JSON: seconds and bytes of each state, instrumented iterations only
    PRIMARY KEY (attempt_id, rank, iteration)
);

CREATE TABLE memory_sample (
    attempt_id INTEGER NOT NULL REFERENCES attempt (attempt_id),
    rank INTEGER NOT NULL,
    sample INTEGER NOT NULL,                -- 0, 1, ... ; the sampler counts from 1,000,000,000
    iteration INTEGER,
    phase TEXT NOT NULL,                    -- before_step after_step offloaded dwell reloaded, or sampler
    at_s DOUBLE PRECISION NOT NULL,         -- since the rank's loop began
    allocated_bytes BIGINT,
    reserved_bytes BIGINT,
    device_used_bytes BIGINT,
    device_free_bytes BIGINT,
    pinned_bytes BIGINT,
    rss_bytes BIGINT,
    cgroup_bytes BIGINT,
    PRIMARY KEY (attempt_id, rank, sample)
);

CREATE TABLE link_probe (
    probe_id INTEGER NOT NULL PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE,
    sweep_id INTEGER REFERENCES sweep (sweep_id),
    host TEXT NOT NULL,
    device_uuid TEXT NOT NULL,
    device_name TEXT,
    pinned BOOLEAN NOT NULL,
    direction TEXT NOT NULL,                -- down (device to host) or up
    bytes BIGINT NOT NULL,                  -- per copy
    copies INTEGER NOT NULL,
    seconds DOUBLE PRECISION NOT NULL,      -- median copy
    gbps DOUBLE PRECISION NOT NULL,
    devices_at_once INTEGER NOT NULL,       -- devices of the host that copied at the same time
    probed_at TEXT NOT NULL
);
CREATE INDEX link_probe_device ON link_probe (device_uuid, probed_at);

CREATE TABLE event (
    event_id INTEGER NOT NULL PRIMARY KEY,
    at TEXT NOT NULL,
    sweep_id INTEGER,
    job_id INTEGER,
    attempt_id INTEGER,
    kind TEXT NOT NULL,                     -- job, attempt, sweep or note
    from_status TEXT,
    to_status TEXT,
    message TEXT
);
CREATE INDEX event_job ON event (job_id);

-- One row a job, rewritten whenever the job's rows change. Medians and percentiles are over warm
-- iterations of the maximum over ranks.
CREATE TABLE job_result (
    job_id INTEGER NOT NULL PRIMARY KEY REFERENCES job (job_id),
    attempt_id INTEGER NOT NULL REFERENCES attempt (attempt_id),
    ranks INTEGER NOT NULL,
    warm_iterations INTEGER NOT NULL,
    step_s_median DOUBLE PRECISION,
    offload_s_median DOUBLE PRECISION,
    offload_s_p95 DOUBLE PRECISION,
    offload_s_min DOUBLE PRECISION,
    offload_s_max DOUBLE PRECISION,
    offload_host_s_median DOUBLE PRECISION,
    offload_all_s_median DOUBLE PRECISION,
    offload_cold_s DOUBLE PRECISION,
    offload_slowest_rank INTEGER,
    reload_s_median DOUBLE PRECISION,
    reload_s_p95 DOUBLE PRECISION,
    reload_s_min DOUBLE PRECISION,
    reload_s_max DOUBLE PRECISION,
    reload_host_s_median DOUBLE PRECISION,
    reload_all_s_median DOUBLE PRECISION,
    reload_cold_s DOUBLE PRECISION,
    reload_slowest_rank INTEGER,
    cold_pinning_s DOUBLE PRECISION,
    copied_bytes BIGINT,                    -- largest rank
    freed_bytes BIGINT,                     -- least rank, median
    predicted_freed_bytes BIGINT,
    device_freed_bytes BIGINT,
    pinned_bytes BIGINT,                    -- largest rank
    peak_reload_bytes BIGINT,
    offload_gbps DOUBLE PRECISION,          -- copied_bytes of one rank over the headline; NULL on a CPU
    reload_gbps DOUBLE PRECISION,
    link_down_gbps DOUBLE PRECISION,        -- probes around the job, pinned and pageable as its copies
    link_up_gbps DOUBLE PRECISION,
    offload_link_share DOUBLE PRECISION,
    reload_link_share DOUBLE PRECISION,
    probe_drift_share DOUBLE PRECISION,     -- relative difference of the probes before and after
    offload_drift_s DOUBLE PRECISION,       -- slope a warm iteration
    leak_bytes DOUBLE PRECISION,            -- slope of allocated bytes a warm iteration
    states_intact BOOLEAN,
    devices_ok BOOLEAN,
    bytes_match BOOLEAN,
    overlapped BOOLEAN,
    skipped_steps INTEGER,
    is_valid BOOLEAN NOT NULL               -- ok and no flag raised: may enter best_setting and compare
);

CREATE VIEW job_summary AS
SELECT s.name AS sweep, j.*,
       r.attempt_id, r.ranks, r.warm_iterations,
       r.step_s_median,
       r.offload_s_median, r.offload_s_p95, r.offload_s_min, r.offload_s_max,
       r.offload_host_s_median, r.offload_all_s_median, r.offload_cold_s, r.offload_slowest_rank,
       r.reload_s_median, r.reload_s_p95, r.reload_s_min, r.reload_s_max,
       r.reload_host_s_median, r.reload_all_s_median, r.reload_cold_s, r.reload_slowest_rank,
       r.cold_pinning_s, r.copied_bytes, r.freed_bytes, r.device_freed_bytes, r.pinned_bytes,
       r.peak_reload_bytes, r.offload_gbps, r.reload_gbps, r.link_down_gbps, r.link_up_gbps,
       r.offload_link_share, r.reload_link_share, r.probe_drift_share, r.offload_drift_s,
       r.leak_bytes, r.states_intact, r.devices_ok, r.bytes_match, r.overlapped,
       r.skipped_steps, r.is_valid,
       a.status AS attempt_status, a.failure_kind, a.message, a.host, a.engine, a.launch_mode,
       a.environment_id, a.wall_s, a.loop_s, a.ended_at
FROM job j
JOIN sweep s ON s.sweep_id = j.sweep_id
LEFT JOIN job_result r ON r.job_id = j.job_id
LEFT JOIN attempt a ON a.job_id = j.job_id
    AND a.number = (SELECT MAX(b.number) FROM attempt b WHERE b.job_id = j.job_id);

-- For each question (sweep, stack, size, states, ranks, circumstances) the setting with the shortest
-- offload + reload, over the valid jobs alone. Repeats are averaged.
CREATE VIEW best_setting AS
SELECT * FROM (
    SELECT g.*, ROW_NUMBER() OVER (
               PARTITION BY g.sweep, g.environment_id, g.model, g.nlayers, g.hidden_dim, g.ffn_dim, g.num_heads, g.vocab_size,
                   g.tied_embeddings, g.seq_len, g.micro_batch, g.dtype, g.zero_stage, g.optimizer,
                   g.param_groups, g.frozen_fraction, g.num_gpus, g.num_nodes, g.included_state,
                   g.dwell_s, g.hold_bytes, g.contention, g.ds, g.env
               ORDER BY g.offload_s_median + g.reload_s_median, g.pin_memory, g.non_blocking,
                   g.reload_non_blocking, g.cell) AS place
    FROM (
        SELECT sweep, environment_id, cell, model, nlayers, hidden_dim, ffn_dim, num_heads, vocab_size, tied_embeddings, seq_len, micro_batch, dtype,
               zero_stage, optimizer, param_groups, frozen_fraction, num_gpus, num_nodes, included_state,
               dwell_s, hold_bytes, contention, ds, env,
               pin_memory, pin_memory_then, non_blocking, reload_non_blocking, gc_freeze, pin_backend, numa, iteration,
               warmup, instrumented, checksums, sampler_hz,
               COUNT(*) AS jobs,
               AVG(offload_s_median) AS offload_s_median, AVG(reload_s_median) AS reload_s_median,
               AVG(offload_gbps) AS offload_gbps, AVG(reload_gbps) AS reload_gbps,
               AVG(offload_link_share) AS offload_link_share, AVG(reload_link_share) AS reload_link_share,
               MIN(freed_bytes) AS freed_bytes, MAX(pinned_bytes) AS pinned_bytes
        FROM job_summary
        WHERE is_valid AND in_spec AND offload_s_median IS NOT NULL AND reload_s_median IS NOT NULL
        GROUP BY sweep, environment_id, cell, model, nlayers, hidden_dim, ffn_dim, num_heads, vocab_size, tied_embeddings, seq_len, micro_batch, dtype,
                 zero_stage, optimizer, param_groups, frozen_fraction, num_gpus, num_nodes,
                 included_state, dwell_s, hold_bytes, contention, ds, env,
                 pin_memory, pin_memory_then, non_blocking, reload_non_blocking, gc_freeze, pin_backend, numa, iteration,
                 warmup, instrumented, checksums, sampler_hz
    ) g
) ranked
WHERE place = 1;

-- The trial table of DeepSpeed's example: a row a trial, seconds of offload and load for its four settings
-- at one size. An inactive non_blocking counts as FALSE. Rendering as "offload / load" is the report's.
CREATE VIEW example_table AS
SELECT sweep, model, nlayers, hidden_dim, ffn_dim, num_heads, vocab_size, tied_embeddings, seq_len, micro_batch, dtype,
       zero_stage, optimizer, param_groups, frozen_fraction, num_gpus, num_nodes, included_state,
       dwell_s, hold_bytes, contention, ds, env, pin_memory_then, pin_backend, numa, iteration, warmup,
       instrumented, checksums, sampler_hz, repeat AS trial,
       MAX(CASE WHEN NOT pin_memory AND NOT COALESCE(non_blocking, FALSE) THEN offload_s_median END) AS pin0_nb0_offload_s,
       MAX(CASE WHEN NOT pin_memory AND NOT COALESCE(non_blocking, FALSE) THEN reload_s_median END) AS pin0_nb0_load_s,
       MAX(CASE WHEN NOT pin_memory AND non_blocking THEN offload_s_median END) AS pin0_nb1_offload_s,
       MAX(CASE WHEN NOT pin_memory AND non_blocking THEN reload_s_median END) AS pin0_nb1_load_s,
       MAX(CASE WHEN pin_memory AND NOT COALESCE(non_blocking, FALSE) THEN offload_s_median END) AS pin1_nb0_offload_s,
       MAX(CASE WHEN pin_memory AND NOT COALESCE(non_blocking, FALSE) THEN reload_s_median END) AS pin1_nb0_load_s,
       MAX(CASE WHEN pin_memory AND non_blocking THEN offload_s_median END) AS pin1_nb1_offload_s,
       MAX(CASE WHEN pin_memory AND non_blocking THEN reload_s_median END) AS pin1_nb1_load_s
FROM job_summary
WHERE status = 'ok' AND (reload_non_blocking IS NULL OR NOT reload_non_blocking)
  AND (gc_freeze IS NULL OR NOT gc_freeze)
GROUP BY sweep, model, nlayers, hidden_dim, ffn_dim, num_heads, vocab_size, tied_embeddings, seq_len, micro_batch, dtype,
         zero_stage, optimizer, param_groups, frozen_fraction, num_gpus, num_nodes, included_state,
         dwell_s, hold_bytes, contention, ds, env, pin_memory_then, pin_backend, numa, iteration, warmup,
         instrumented, checksums, sampler_hz, repeat;

INSERT INTO alembic_version (version_num) VALUES ('0001');
INSERT INTO counter (name, next_id) VALUES ('sweep', 1), ('job', 1), ('attempt', 1), ('environment', 1),
    ('link_probe', 1), ('event', 1);
