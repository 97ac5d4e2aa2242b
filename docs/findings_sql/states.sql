/* sweeps/bytes.yaml: each state alone, and all but the weights. */
SELECT num_gpus AS GPUs, zero_stage AS ZeRO, included_state AS offloaded, freed_bytes AS freed,
       predicted_freed_bytes AS predicted, freed_bytes - predicted_freed_bytes AS difference, bytes_match AS agrees,
       offload_s_median AS offload_s, reload_s_median AS reload_s
FROM job_summary
WHERE sweep IN ('bytes', 'bytes-2') AND status = 'ok' AND included_state <> 'all' AND frozen_fraction = 0
ORDER BY num_gpus, zero_stage DESC, job_id
