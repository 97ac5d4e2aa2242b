/* The raw link, measured in a process of its own. */
SELECT devices_at_once, pinned AS pinned_link, direction, COUNT(*) AS probes, COUNT(DISTINCT device_uuid) AS devices,
       MIN(gbps) AS least_gbps, MAX(gbps) AS greatest_gbps, AVG(gbps) AS mean_gbps,
       AVG(gbps) * devices_at_once AS sum_gbps, (MAX(gbps) - MIN(gbps)) / AVG(gbps) AS spread_share
FROM link_probe
GROUP BY devices_at_once, pinned, direction
ORDER BY devices_at_once, pinned DESC, direction
