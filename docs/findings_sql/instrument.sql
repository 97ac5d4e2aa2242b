/* The same job plain, without checksums, and with the sampler alone: medians of each repeat. */
SELECT hidden_dim, repeat, checksums, sampler_hz, offload_s_median AS offload_s, reload_s_median AS reload_s
FROM job_summary
WHERE sweep = 'instrument' AND status = 'ok'
ORDER BY hidden_dim, repeat, checksums DESC, sampler_hz
