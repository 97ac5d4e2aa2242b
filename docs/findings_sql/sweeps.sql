/* How far each sweep came. */
SELECT sweep, num_gpus AS GPUs, COUNT(*) AS jobs, SUM(CASE WHEN status = 'ok' THEN 1 ELSE 0 END) AS ok,
       SUM(CASE WHEN status NOT IN ('ok', 'skipped', 'pending', 'running', 'cancelled', 'lost') THEN 1 ELSE 0 END) AS failed,
       SUM(CASE WHEN status = 'skipped' THEN 1 ELSE 0 END) AS skipped,
       SUM(CASE WHEN status IN ('pending', 'running', 'cancelled', 'lost') THEN 1 ELSE 0 END) AS not_run,
       MAX(CASE WHEN status = 'ok' THEN copied_bytes END) AS largest_copy
FROM job_summary
WHERE in_spec
GROUP BY sweep, num_gpus
ORDER BY MIN(job_id)
