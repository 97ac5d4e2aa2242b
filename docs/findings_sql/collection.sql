/* The same cell with a usual heap and with a frozen one: the difference is Python's garbage collection. */
SELECT u.GPUs, u.copied, u.offload_s AS usual_s, f.offload_s AS frozen_s, u.offload_s - f.offload_s AS difference_s,
       (u.offload_s - f.offload_s) / u.offload_s AS difference_share
FROM (SELECT environment_id, num_gpus AS GPUs, copied_bytes AS copied, pin_memory, non_blocking,
             reload_non_blocking, pin_backend, model, included_state, zero_stage, dtype, dwell_s, hold_bytes, ds,
             AVG(offload_s_median) AS offload_s
      FROM job_summary WHERE is_valid AND NOT gc_freeze AND checksums AND sampler_hz = 0
      GROUP BY environment_id, num_gpus, copied_bytes, pin_memory, non_blocking, reload_non_blocking, pin_backend,
               model, included_state, zero_stage, dtype, dwell_s, hold_bytes, ds) u
JOIN (SELECT environment_id, num_gpus AS GPUs, copied_bytes AS copied, pin_memory, non_blocking,
             reload_non_blocking, pin_backend, model, included_state, zero_stage, dtype, dwell_s, hold_bytes, ds,
             AVG(offload_s_median) AS offload_s
      FROM job_summary WHERE is_valid AND gc_freeze AND checksums AND sampler_hz = 0
      GROUP BY environment_id, num_gpus, copied_bytes, pin_memory, non_blocking, reload_non_blocking, pin_backend,
               model, included_state, zero_stage, dtype, dwell_s, hold_bytes, ds) f
  ON u.environment_id = f.environment_id AND u.GPUs = f.GPUs AND u.copied = f.copied
     AND u.pin_memory = f.pin_memory AND COALESCE(u.non_blocking, FALSE) = COALESCE(f.non_blocking, FALSE)
     AND COALESCE(u.reload_non_blocking, FALSE) = COALESCE(f.reload_non_blocking, FALSE)
     AND COALESCE(u.pin_backend, '') = COALESCE(f.pin_backend, '') AND u.model = f.model
     AND u.included_state = f.included_state AND u.zero_stage = f.zero_stage AND u.dtype = f.dtype
     AND u.dwell_s = f.dwell_s AND u.hold_bytes = f.hold_bytes AND COALESCE(u.ds, '') = COALESCE(f.ds, '')
ORDER BY u.GPUs, u.copied
