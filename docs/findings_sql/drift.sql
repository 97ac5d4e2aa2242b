/* Drift and leaks over cycles: the slope of a job with at least 50 warm iterations. */
SELECT sweep, num_gpus AS GPUs, copied_bytes AS copied, warm_iterations AS cycles, offload_s_median AS offload_s,
       offload_drift_s AS drift_a_cycle_s, leak_bytes AS leak_a_cycle
FROM job_summary
WHERE status = 'ok' AND warm_iterations >= 50
ORDER BY sweep, job_id
