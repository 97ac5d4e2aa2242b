/* The four settings of the example at 4096 x 8 where there are three trials or more, seconds: mean, least and greatest of the trials. */
SELECT sweep, pin_memory, non_blocking, COUNT(*) AS trials, AVG(offload_s_median) AS offload_s,
       MIN(offload_s_median) AS offload_least_s, MAX(offload_s_median) AS offload_most_s,
       AVG(reload_s_median) AS reload_s, MIN(reload_s_median) AS reload_least_s, MAX(reload_s_median) AS reload_most_s
FROM job_summary
WHERE status = 'ok' AND hidden_dim = 4096 AND nlayers = 8 AND num_gpus = 1
      AND sweep IN (SELECT sweep FROM example_table WHERE trial >= 3 AND hidden_dim = 4096 AND num_gpus = 1)
GROUP BY sweep, pin_memory, non_blocking
ORDER BY sweep, pin_memory, non_blocking
