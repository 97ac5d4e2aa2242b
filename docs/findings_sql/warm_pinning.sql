/* Pinning in an iteration that is not the first of its process, seconds. */
SELECT MAX(i.pinning_s) AS most_s
FROM iteration i
WHERE NOT i.is_cold AND i.pinning_s IS NOT NULL AND NOT i.is_instrumented
