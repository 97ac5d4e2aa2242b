/* The hosts and stacks on which attempts were made. */
SELECT gpu_count AS gpus, gpu_name, pcie_generation, pcie_width, ram_bytes, cpu_count, driver, torch, deepspeed
FROM environment
WHERE accelerator = 'cuda'
GROUP BY gpu_count, gpu_name, pcie_generation, pcie_width, ram_bytes, cpu_count, driver, torch, deepspeed
ORDER BY MIN(created_at)
