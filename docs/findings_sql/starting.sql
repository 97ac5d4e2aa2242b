/* What a job costs beyond its loop: wall clock from launch to its ranks' end, without waiting. */
SELECT a.launch_mode AS launcher, j.num_gpus AS GPUs, COUNT(*) AS jobs, MIN(a.wall_s - a.loop_s) AS least_s,
       AVG(a.wall_s - a.loop_s) AS mean_s, MAX(a.wall_s - a.loop_s) AS most_s
FROM attempt a JOIN job j ON j.job_id = a.job_id
WHERE a.status = 'ok' AND a.loop_s IS NOT NULL
GROUP BY a.launch_mode, j.num_gpus
ORDER BY j.num_gpus, a.launch_mode
