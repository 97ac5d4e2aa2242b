/* Copied and pinned bytes against the formula. */
SELECT num_gpus AS GPUs, zero_stage AS ZeRO, dtype, pin_memory, non_blocking, pin_backend, included_state AS offloaded,
       MAX(copied_bytes) AS copied, MAX(predicted_copied_bytes) AS copied_predicted, MAX(pinned_bytes) AS pinned,
       MAX(predicted_pinned_bytes) AS pinned_predicted, MAX(cold_pinning_s) AS first_pinning_s
FROM job_summary
WHERE status = 'ok' AND pinned_bytes IS NOT NULL AND sweep NOT IN ('known_faults', 'instrument')
GROUP BY sweep, num_gpus, zero_stage, dtype, pin_memory, non_blocking, pin_backend, included_state,
         predicted_copied_bytes
ORDER BY MAX(copied_bytes) DESC, num_gpus, pin_memory DESC, non_blocking DESC, zero_stage DESC, dtype,
         included_state, sweep
