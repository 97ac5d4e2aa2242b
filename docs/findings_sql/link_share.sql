/* How near pinned, non-blocking copies come to the raw link, by size, with and without the collector. */
SELECT num_gpus AS GPUs, copied_bytes AS copied, gc_freeze, COUNT(*) AS jobs, AVG(offload_s_median) AS offload_s,
       AVG(offload_gbps) AS offload_gbps, AVG(offload_link_share) AS offload_link_share,
       AVG(reload_s_median) AS reload_s, AVG(reload_gbps) AS reload_gbps, AVG(reload_link_share) AS reload_link_share
FROM job_summary
WHERE is_valid AND pin_memory AND non_blocking AND model = 'linear' AND included_state = 'all' AND zero_stage = 3
      AND dtype = 'bfloat16' AND offload_link_share IS NOT NULL AND ds IS NULL AND sampler_hz = 0 AND checksums
      AND hold_bytes = 0 AND contention = 1
GROUP BY num_gpus, copied_bytes, gc_freeze
ORDER BY num_gpus, copied_bytes, gc_freeze
