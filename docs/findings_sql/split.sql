/* Where the time of an offload and a reload goes: instrumented iterations, mean over them, slowest rank of each. */
SELECT GPUs, copied, ZeRO, dtype, pin_memory, non_blocking, gc_freeze, AVG(offload_s) AS offload_s, AVG(copy_s) AS copy_s,
       AVG(gc_s) AS gc_s, AVG(cache_s) AS cache_s, AVG(alloc_s) AS alloc_s, AVG(wait_s) AS wait_s,
       AVG(reload_s) AS reload_s, AVG(reload_copy_s) AS reload_copy_s, AVG(reload_alloc_s) AS reload_alloc_s
FROM (
    SELECT j.num_gpus AS GPUs, i.copied_bytes AS copied, j.zero_stage AS ZeRO, j.dtype, j.pin_memory, j.non_blocking,
           j.gc_freeze, i.offload_s, i.offload_copy_s AS copy_s, i.offload_gc_s AS gc_s,
           i.offload_empty_cache_s AS cache_s, i.offload_alloc_s AS alloc_s, i.offload_wait_s AS wait_s,
           i.reload_s, i.reload_copy_s, i.reload_alloc_s,
           ROW_NUMBER() OVER (PARTITION BY i.attempt_id, i.iteration ORDER BY i.offload_s DESC, i.rank) AS place
    FROM iteration i JOIN attempt a ON a.attempt_id = i.attempt_id JOIN job j ON j.job_id = a.job_id
    WHERE i.is_instrumented AND a.status = 'ok'
) one
WHERE place = 1
GROUP BY GPUs, copied, ZeRO, dtype, pin_memory, non_blocking, gc_freeze
ORDER BY GPUs, copied, ZeRO DESC, pin_memory DESC, gc_freeze
