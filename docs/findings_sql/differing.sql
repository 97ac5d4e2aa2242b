/* Jobs with an offload that disagrees with the formula. */
SELECT j.num_gpus AS GPUs, j.zero_stage AS ZeRO, j.dtype, j.model, j.included_state AS offloaded, COUNT(*) AS offloads,
       SUM(CASE WHEN i.bytes_match THEN 0 ELSE 1 END) AS disagree, MIN(i.freed_bytes) AS least_freed,
       MAX(i.predicted_freed_bytes) AS predicted
FROM iteration i JOIN attempt a ON a.attempt_id = i.attempt_id JOIN job j ON j.job_id = a.job_id
WHERE i.bytes_match IS NOT NULL
GROUP BY j.job_id, j.num_gpus, j.zero_stage, j.dtype, j.model, j.included_state
HAVING SUM(CASE WHEN i.bytes_match THEN 0 ELSE 1 END) > 0
ORDER BY j.job_id
