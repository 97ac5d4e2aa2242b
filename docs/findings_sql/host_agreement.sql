/* Jobs whose copied bytes differ from the prediction, and by how much pinned bytes do. */
SELECT COUNT(*) AS jobs, SUM(CASE WHEN copied_bytes <> predicted_copied_bytes THEN 1 ELSE 0 END) AS copied_differ,
       MIN(pinned_bytes - predicted_pinned_bytes) AS least_pinned_more,
       MAX(pinned_bytes - predicted_pinned_bytes) AS most_pinned_more
FROM job_summary
WHERE status = 'ok' AND pinned_bytes IS NOT NULL
