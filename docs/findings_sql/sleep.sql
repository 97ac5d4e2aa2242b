/* A 7B-class model on two GPUs put to sleep and woken. */
SELECT sweep, model, included_state AS offloaded, pin_backend, dwell_s, hold_bytes AS held, COUNT(*) AS jobs,
       AVG(offload_s_median) AS sleep_s, AVG(reload_s_median) AS wake_s, AVG(offload_cold_s) AS first_sleep_s,
       MAX(copied_bytes) AS copied, MIN(freed_bytes) AS freed, MIN(device_freed_bytes) AS device_gained,
       MAX(pinned_bytes) AS pinned_a_rank, MAX(pinned_bytes) * 2 AS pinned_on_host,
       AVG(offload_link_share) AS offload_link_share, AVG(reload_link_share) AS reload_link_share
FROM job_summary
WHERE status = 'ok' AND num_gpus = 2 AND parameters_total BETWEEN 6000000000 AND 9000000000
GROUP BY sweep, model, included_state, pin_backend, dwell_s, hold_bytes
ORDER BY sweep, MAX(copied_bytes) DESC
