/* sweeps/bytes.yaml: ZeRO stages and precisions, all states. */
SELECT num_gpus AS GPUs, zero_stage AS ZeRO, dtype, optimizer, freed_bytes AS freed,
       predicted_freed_bytes AS predicted, freed_bytes - predicted_freed_bytes AS difference, bytes_match AS agrees,
       device_freed_bytes AS device_gained, offload_s_median AS offload_s, reload_s_median AS reload_s
FROM job_summary
WHERE sweep IN ('bytes', 'bytes-2') AND status = 'ok' AND included_state = 'all' AND model = 'linear' AND ds IS NULL
      AND param_groups = 1 AND frozen_fraction = 0 AND pin_memory AND NOT non_blocking AND pin_backend = 'default'
      AND instrumented = 0 AND checksums AND sampler_hz = 0 AND hold_bytes = 0
ORDER BY num_gpus, zero_stage DESC, job_id
