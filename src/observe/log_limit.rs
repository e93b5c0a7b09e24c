//! A bound on log lines that requests can cause.
//!
//! When an upstream is down, every request fails. A line for each would cost
//! more than the requests and hide everything else.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Allows a number of lines in each second.
#[derive(Default)]
pub struct LogLimit {
    /// The second in the upper 32 bits, lines in it in the lower.
    window: AtomicU64,
}

impl LogLimit {
    /// Lines about failed upstream tries in a second.
    const PER_SECOND: u64 = 10;

    /// Whether a line may be written now.
    pub fn allow(&self, now: SystemTime) -> bool {
        let second = now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()) & 0xffff_ffff;
        let next = |current: u64| {
            let (then, lines) = (current >> 32, current & 0xffff_ffff);
            match then == second {
                true if lines >= Self::PER_SECOND => None,
                true => Some(current + 1),
                false => Some((second << 32) | 1),
            }
        };
        self.window
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn ten_lines_a_second() {
        let limit = LogLimit::default();
        let t0 = UNIX_EPOCH + Duration::from_secs(1_000);
        assert_eq!((0..100).filter(|_| limit.allow(t0)).count(), 10);
        assert!(limit.allow(t0 + Duration::from_secs(1)));
    }
}
