/* ZeRO-2 with Adam's states alone: what the first offload of a process frees. */
SELECT SUBSTR(j.cell, 4, 6) AS cell, i.rank, i.iteration, i.freed_bytes AS freed,
       i.predicted_freed_bytes AS predicted, i.bytes_match AS agrees, i.copied_bytes AS copied
FROM iteration i
JOIN attempt a ON a.attempt_id = i.attempt_id
JOIN job j ON j.job_id = a.job_id
JOIN sweep s ON s.sweep_id = j.sweep_id
WHERE s.name = 'bytes-2' AND j.zero_stage = 2 AND j.included_state = 'optim_states' AND i.bytes_match IS NOT NULL
ORDER BY i.rank, i.iteration
