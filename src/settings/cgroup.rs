//! How many worker threads: as many as there are cores, but no more than a container may use.

use std::path::Path;

/// Threads for this machine and the control group below `root` (`/sys/fs/cgroup`).
pub(super) fn workers(root: &Path) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    quota(root).map_or(cores, |quota| cores.min(quota)).max(1)
}

/// Cores that the quota is worth, rounded up; `None` without a quota.
fn quota(root: &Path) -> Option<usize> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).ok();
    let (quota, period) = match read("cpu.max") {
        // Version 2: `MICROSECONDS PERIOD`, or `max PERIOD`.
        Some(text) => {
            let mut words = text.split_whitespace();
            (
                words.next()?.parse::<u64>().ok()?,
                words.next()?.parse::<u64>().ok()?,
            )
        }
        // Version 1: -1 is no quota, and does not parse as unsigned.
        None => {
            let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
            (
                number("cpu/cpu.cfs_quota_us")?,
                number("cpu/cpu.cfs_period_us")?,
            )
        }
    };
    (period > 0).then(|| usize::try_from(quota.div_ceil(period)).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: Option<usize>) {
        let name: String = files
            .iter()
            .map(|(_, text)| text.replace([' ', '\n'], "_"))
            .collect();
        let root =
            std::env::temp_dir().join(format!("lockgate-cgroup-{}-{name}", std::process::id()));
        std::fs::create_dir_all(root.join("cpu")).unwrap();
        for (file, text) in files {
            std::fs::write(root.join(file), text).unwrap();
        }
        assert_eq!(quota(&root), expected, "{files:?}");
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn quotas_of_both_versions() {
        check(&[("cpu.max", "max 100000\n")], None);
        check(&[("cpu.max", "150000 100000\n")], Some(2));
        check(&[("cpu.max", "50000 100000\n")], Some(1));
        check(
            &[
                ("cpu/cpu.cfs_quota_us", "-1\n"),
                ("cpu/cpu.cfs_period_us", "100000\n"),
            ],
            None,
        );
        check(
            &[
                ("cpu/cpu.cfs_quota_us", "400000\n"),
                ("cpu/cpu.cfs_period_us", "100000\n"),
            ],
            Some(4),
        );
        check(&[], None);
    }
}
