/* Sweeps with trials of all four settings of DeepSpeed's example. */
SELECT sweep, hidden_dim, nlayers, num_gpus, COUNT(*) AS trials
FROM example_table
WHERE pin0_nb0_offload_s IS NOT NULL AND pin0_nb1_offload_s IS NOT NULL AND pin1_nb0_offload_s IS NOT NULL
      AND pin1_nb1_offload_s IS NOT NULL AND model = 'linear' AND dtype = 'bfloat16' AND zero_stage = 3
GROUP BY sweep, hidden_dim, nlayers, num_gpus
ORDER BY num_gpus, hidden_dim, sweep
