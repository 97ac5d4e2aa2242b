/* Jobs beside a process that is not theirs on the device (benchmarks/stranger.py). */
SELECT COUNT(*) AS jobs, COALESCE(SUM(CASE WHEN a.overlapped THEN 1 ELSE 0 END), 0) AS noticed,
       MAX(a.overlap_note) AS note
FROM attempt a JOIN job j ON j.job_id = a.job_id JOIN sweep s ON s.sweep_id = j.sweep_id
WHERE s.name = 'stranger' AND a.status = 'ok'
