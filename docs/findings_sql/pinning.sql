/* What pinning costs, once: all in the first offload of a process. rest: what is neither pinning nor a warm
   offload. cycles_to_pay: after how many offload and reload pairs, the first one counted, the pinned setting is
   ahead of pageable memory of the same size, blocking. */
SELECT p.GPUs, p.copied, p.pin_backend, p.pinned, p.first_pinning_s, p.pinned / p.first_pinning_s / 1e9 AS pinning_gbps,
       p.first_offload_s, p.first_offload_s - p.first_pinning_s - p.offload_s AS rest_s, p.both_s AS warm_pair_s,
       n.both_s AS pageable_pair_s,
       CASE WHEN n.both_s <= p.both_s THEN NULL WHEN p.first_pair_s <= n.first_pair_s THEN 1
            ELSE 1 + (p.first_pair_s - n.first_pair_s) / (n.both_s - p.both_s) END AS cycles_to_pay
FROM (SELECT environment_id, num_gpus AS GPUs, copied_bytes AS copied, COALESCE(pin_backend, 'default') AS pin_backend,
             MAX(pinned_bytes) AS pinned, AVG(cold_pinning_s) AS first_pinning_s, AVG(offload_cold_s) AS first_offload_s,
             AVG(offload_s_median) AS offload_s, AVG(offload_s_median + reload_s_median) AS both_s,
             AVG(offload_cold_s + reload_cold_s) AS first_pair_s
      FROM job_summary
      WHERE is_valid AND pin_memory AND zero_stage = 3 AND cold_pinning_s > 0 AND included_state = 'all'
            AND dtype = 'bfloat16' AND NOT gc_freeze AND sampler_hz = 0 AND checksums AND dwell_s = 0
      GROUP BY environment_id, num_gpus, copied_bytes, COALESCE(pin_backend, 'default')) p
LEFT JOIN (SELECT environment_id, num_gpus AS GPUs, copied_bytes AS copied, AVG(offload_cold_s + reload_cold_s) AS first_pair_s,
                  AVG(offload_s_median + reload_s_median) AS both_s
           FROM job_summary
           WHERE is_valid AND NOT pin_memory AND NOT COALESCE(non_blocking, FALSE) AND zero_stage = 3
                 AND included_state = 'all' AND dtype = 'bfloat16' AND NOT gc_freeze
           GROUP BY environment_id, num_gpus, copied_bytes) n
  ON n.environment_id = p.environment_id AND n.GPUs = p.GPUs AND n.copied = p.copied
ORDER BY p.GPUs, p.copied, p.pin_backend
