/* sweeps/bytes.yaml: models, groups, frozen layers, and DeepSpeed's settings that change a buffer. */
SELECT num_gpus AS GPUs, zero_stage AS ZeRO, model, tied_embeddings, param_groups, frozen_fraction,
       COALESCE(ds, '') AS ds, freed_bytes AS freed, predicted_freed_bytes AS predicted,
       freed_bytes - predicted_freed_bytes AS difference, bytes_match AS agrees
FROM job_summary
WHERE sweep IN ('bytes', 'bytes-2') AND status = 'ok'
      AND (ds IS NOT NULL OR model <> 'linear' OR param_groups > 1 OR frozen_fraction > 0)
ORDER BY num_gpus, job_id
