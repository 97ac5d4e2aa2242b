/* Every setting of one question: all states of the linear model in bfloat16 under ZeRO-3, by bytes copied.
   Repeats are averaged; times_best compares offload + reload with the best setting of that size. */
SELECT g.*, g.offload_s + g.reload_s AS both_s,
       (g.offload_s + g.reload_s) / MIN(g.offload_s + g.reload_s) OVER question AS times_best,
       COUNT(*) OVER question AS settings
FROM (
    SELECT environment_id, num_gpus AS GPUs, copied_bytes AS copied, pin_memory, non_blocking, reload_non_blocking,
           gc_freeze, pin_backend, COUNT(*) AS jobs, AVG(offload_s_median) AS offload_s, AVG(reload_s_median) AS reload_s,
           AVG(offload_link_share) AS offload_link_share, AVG(reload_link_share) AS reload_link_share, ds
    FROM job_summary
    WHERE is_valid AND model = 'linear' AND included_state = 'all' AND dtype = 'bfloat16' AND zero_stage = 3
          AND optimizer = 'adam' AND param_groups = 1 AND frozen_fraction = 0 AND pin_memory_then IS NULL
          AND contention = 1 AND hold_bytes = 0 AND sampler_hz = 0 AND checksums AND env IS NULL
          AND offload_s_median IS NOT NULL AND reload_s_median IS NOT NULL
          AND sweep NOT IN ('instrument', 'known_faults')
    GROUP BY environment_id, num_gpus, copied_bytes, pin_memory, non_blocking, reload_non_blocking, gc_freeze,
             pin_backend, ds
) g
WINDOW question AS (PARTITION BY g.environment_id, g.GPUs, g.copied, g.ds)
ORDER BY g.GPUs, g.copied, both_s
