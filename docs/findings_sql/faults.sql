/* sweeps/known_faults.yaml: how each planted fault and each control ended. */
SELECT included_state AS offloaded, frozen_fraction, pin_memory, pin_memory_then, status, failure_kind, message
FROM job_summary
WHERE sweep = 'known_faults' AND attempt_status IS NOT NULL
ORDER BY job_id
