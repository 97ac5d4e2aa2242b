/* The same bytes a rank on more ranks of one host; slower = seconds against those of the fewest ranks. */
SELECT g.*, g.offload_s / FIRST_VALUE(g.offload_s) OVER one_rank AS offload_times,
       g.reload_s / FIRST_VALUE(g.reload_s) OVER one_rank AS reload_times
FROM (
    SELECT environment_id, pin_memory, non_blocking, num_gpus AS GPUs, COUNT(*) AS jobs, MAX(copied_bytes) AS copied_a_rank,
           AVG(offload_s_median) AS offload_s, AVG(offload_gbps) AS offload_gbps_a_gpu,
           AVG(offload_gbps) * num_gpus AS offload_gbps_in_sum, AVG(reload_s_median) AS reload_s,
           AVG(reload_gbps) AS reload_gbps_a_gpu, AVG(reload_gbps) * num_gpus AS reload_gbps_in_sum,
           AVG(offload_link_share) AS offload_link_share, AVG(reload_link_share) AS reload_link_share
    FROM job_summary
    WHERE sweep = 'scaling' AND status = 'ok'
    GROUP BY environment_id, pin_memory, non_blocking, num_gpus
) g
WINDOW one_rank AS (PARTITION BY g.environment_id, g.pin_memory, g.non_blocking ORDER BY g.GPUs)
ORDER BY g.environment_id, g.pin_memory DESC, g.GPUs
