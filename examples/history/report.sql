-- The figures of `tb-supervisor report`, of what `tb-supervisor export -o history` wrote, for DuckDB:
--     pip install duckdb-cli
--     duckdb < examples/history/report.sql
-- The window is whole days in UTC: today and the seven before. Change it, and the path, in the first statement.
-- Not in here: the exact interval of the MTTF, which needs quantiles of the gamma distribution.

CREATE OR REPLACE TEMP VIEW fleet_days AS
SELECT *, CAST(ceil(log2(devices)) AS INTEGER) AS size
FROM read_parquet('history/session_days/*/*.parquet', hive_partitioning = true, union_by_name = true)
WHERE day >= current_date - 7 AND day < current_date + 1;

CREATE OR REPLACE TEMP VIEW fleet_secs AS
UNPIVOT (SELECT logdir, run, team, host, devices, productive_secs, program_startup_secs, checkpoint_restore_secs,
                unproductive_checkpoint_save_secs, wasted_progress_from_disruption_secs,
                infrastructure_recovery_from_disruption_secs, stall_secs, silent_secs, other_secs, at_risk_secs
         FROM fleet_days)
ON COLUMNS(* EXCLUDE (logdir, run, team, host, devices))
INTO NAME cause VALUE secs;

-- totals: goodput is the ETTR: productive device time divided by all of it
SELECT count(DISTINCT (logdir, run)) AS runs,
       count(DISTINCT (logdir, run, session)) AS sessions,
       sum((wall_secs - unknown_secs) * devices) / 3600 AS device_hours,
       sum(productive_secs * devices) / sum((wall_secs - unknown_secs) * devices) AS goodput,
       (sum((wall_secs - unknown_secs) * devices) - sum(productive_secs * devices)) / 3600 AS lost_device_hours,
       sum(unknown_secs * devices) / 3600 AS unknown_device_hours,
       count(*) FILTER (is_failure) AS failures,
       sum(alive_secs) FILTER (unknown_secs = 0) / 3600 / nullif(count(*) FILTER (is_failure), 0) AS mttf_hours
FROM fleet_days;

-- causes: device hours, and their share
SELECT replace(cause, '_secs', '') AS cause,
       sum(secs * devices) / 3600 AS device_hours,
       sum(secs * devices) / sum(sum(secs * devices)) OVER () AS share
FROM fleet_secs GROUP BY 1 ORDER BY 2 DESC;

-- teams: what lost most comes first; take user, host or labels['...'] instead
SELECT team,
       sum(productive_secs * devices) / nullif(sum((wall_secs - unknown_secs) * devices), 0) AS goodput,
       sum((wall_secs - unknown_secs - productive_secs) * devices) / 3600 AS lost_device_hours
FROM fleet_days GROUP BY 1 ORDER BY 3 DESC NULLS LAST;

-- sizes: mean time to failure by the number of devices, to a factor of two
SELECT CAST(pow(2, size) AS BIGINT) AS devices_high,
       count(DISTINCT (logdir, run)) AS runs,
       count(*) FILTER (is_failure) AS failures,
       sum(alive_secs) FILTER (unknown_secs = 0) / 3600 / nullif(count(*) FILTER (is_failure), 0) AS mttf_hours
FROM fleet_days GROUP BY size ORDER BY size;

-- runs: the costliest
SELECT run, sum((wall_secs - unknown_secs - productive_secs) * devices) / 3600 AS lost_device_hours,
       count(*) FILTER (is_failure) AS failures
FROM fleet_days GROUP BY logdir, run ORDER BY 2 DESC NULLS LAST, 1 LIMIT 20;

-- hosts: those with more failures after a first step than expected first; of the failures of a size, a host is expected to have its
-- share of the time of all runs of that size
WITH by_size AS (
  SELECT host, size, sum(alive_secs) AS secs, count(*) FILTER (is_failure AND has_trained) AS failures
  FROM fleet_days WHERE host IS NOT NULL AND alive_secs > 0 AND unknown_secs = 0 GROUP BY host, size
), rates AS (
  SELECT size, sum(failures) / sum(secs) AS rate FROM by_size GROUP BY size HAVING sum(secs) > 0
)
SELECT host, CAST(sum(failures) AS BIGINT) AS failures, sum(secs * rate) AS expected
FROM by_size JOIN rates USING (size) GROUP BY host ORDER BY expected - sum(failures), host;
