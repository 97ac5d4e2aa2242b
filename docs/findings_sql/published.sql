/* The example's published case: four ranks, hidden_dim 32768, nlayers 4. */
SELECT sweep, pin_memory, non_blocking, COUNT(*) AS trials, AVG(offload_s_median) AS offload_s,
       AVG(reload_s_median) AS reload_s, AVG(offload_gbps) AS offload_gbps_a_gpu,
       AVG(offload_gbps) * 4 AS offload_gbps_in_sum, AVG(reload_gbps) AS reload_gbps_a_gpu,
       AVG(reload_gbps) * 4 AS reload_gbps_in_sum, AVG(offload_link_share) AS offload_link_share,
       AVG(reload_link_share) AS reload_link_share, MIN(freed_bytes) AS freed, MAX(freed_bytes) AS freed_most,
       MAX(predicted_freed_bytes) AS predicted, MAX(pinned_bytes) AS pinned,
       MAX(predicted_pinned_bytes) AS pinned_predicted
FROM job_summary
WHERE status = 'ok' AND hidden_dim = 32768 AND nlayers = 4 AND num_gpus = 4 AND model = 'linear'
      AND NOT COALESCE(reload_non_blocking, FALSE) AND COALESCE(pin_backend, 'default') = 'default'
GROUP BY sweep, pin_memory, non_blocking
ORDER BY sweep, pin_memory, non_blocking
