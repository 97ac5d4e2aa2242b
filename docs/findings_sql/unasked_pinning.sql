/* Pageable jobs with non_blocking beside the same without: what torch pinned although nobody asked for it. */
SELECT n.GPUs, n.ZeRO, n.copied, n.pinned, b.offload_s AS blocking_offload_s, n.offload_s AS non_blocking_offload_s,
       b.reload_s AS after_blocking_reload_s, n.reload_s AS after_non_blocking_reload_s
FROM (SELECT environment_id, num_gpus AS GPUs, zero_stage AS ZeRO, copied_bytes AS copied, MAX(pinned_bytes) AS pinned,
             AVG(offload_s_median) AS offload_s, AVG(reload_s_median) AS reload_s
      FROM job_summary
      WHERE is_valid AND NOT pin_memory AND non_blocking AND pin_memory_then IS NULL AND NOT gc_freeze
            AND model = 'linear' AND included_state = 'all' AND pinned_bytes > 1000000
      GROUP BY environment_id, num_gpus, zero_stage, copied_bytes) n
LEFT JOIN (SELECT environment_id, num_gpus AS GPUs, zero_stage AS ZeRO, copied_bytes AS copied,
                  AVG(offload_s_median) AS offload_s, AVG(reload_s_median) AS reload_s
           FROM job_summary
           WHERE is_valid AND NOT pin_memory AND NOT COALESCE(non_blocking, FALSE) AND pin_memory_then IS NULL
                 AND NOT gc_freeze AND model = 'linear' AND included_state = 'all'
           GROUP BY environment_id, num_gpus, zero_stage, copied_bytes) b
  ON b.environment_id = n.environment_id AND b.GPUs = n.GPUs AND b.ZeRO = n.ZeRO AND b.copied = n.copied
ORDER BY n.GPUs, n.ZeRO, n.copied
