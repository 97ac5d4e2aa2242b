/* The same states by ZeRO stage: seconds of an offload. */
SELECT num_gpus AS GPUs, zero_stage AS ZeRO, COUNT(*) AS jobs, MAX(copied_bytes) AS most_copied,
       MIN(offload_s_median) AS least_s, MAX(offload_s_median) AS most_s
FROM job_summary
WHERE sweep = 'bytes-2' AND status = 'ok' AND included_state = 'all' AND model = 'linear' AND ds IS NULL
      AND pin_memory AND NOT non_blocking AND pin_backend = 'default' AND frozen_fraction = 0 AND param_groups = 1
      AND instrumented = 0 AND checksums AND sampler_hz = 0 AND hold_bytes = 0
GROUP BY num_gpus, zero_stage
ORDER BY zero_stage DESC
