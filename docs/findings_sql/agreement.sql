/* Freed bytes against the formula, every offload of every rank. */
SELECT COUNT(*) AS offloads, COALESCE(SUM(CASE WHEN i.bytes_match THEN 1 ELSE 0 END), 0) AS agree,
       MAX(CASE WHEN i.bytes_match THEN ABS(i.freed_bytes - i.predicted_freed_bytes) END) AS largest_difference,
       COUNT(DISTINCT j.num_gpus) AS rank_counts
FROM iteration i JOIN attempt a ON a.attempt_id = i.attempt_id JOIN job j ON j.job_id = a.job_id
WHERE i.bytes_match IS NOT NULL
