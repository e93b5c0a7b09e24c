//! Monotonic time that stands close to the wall clock.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::{HORIZON, Nanos};

/// Zero: the beginning of 2020, so that forty bits of milliseconds last until 2054.
const ZERO_UNIX: Duration = Duration::from_secs(1_577_836_800);

/// A wall clock before this is as good as not set. Above zero by more than any request is late, so
/// that no time is ever 0, which means "never seen".
const EARLIEST: Nanos = 1 << 50;

/// A wall clock after this (2045) is wrong, too; the process can still run nine years.
const LATEST: Nanos = 25 * 365 * 86_400 * 1_000_000_000;

/// Turns instants into [`Nanos`].
///
/// The first instant is tied to the wall clock, so that windows which start on the minute do so;
/// from then on only monotonic time counts, and a clock that is set never opens or closes a window.
#[derive(Debug, Default)]
pub struct Clock {
    first: OnceLock<(Instant, Nanos)>,
}

impl Clock {
    /// One that shows this time at this instant, whatever the wall clock does.
    pub fn showing(instant: Instant, nanos: Nanos) -> Clock {
        let first = OnceLock::from((instant, nanos.clamp(EARLIEST, HORIZON)));
        Clock { first }
    }

    /// The time of an instant. `tie` is some other instant and what the wall clock showed then; the
    /// first one counts.
    pub fn at(&self, instant: Instant, tie: (Instant, SystemTime)) -> Nanos {
        let (first, zero) = self.first.get_or_init(|| (tie.0, since_zero(tie.1)));
        match instant.checked_duration_since(*first) {
            Some(later) => *zero + nanos(later),
            None => *zero - nanos(*first - instant).min(EARLIEST / 2),
        }
    }
}

/// What a clock shows that begins at a time of the wall clock.
pub fn since_zero(wall: SystemTime) -> Nanos {
    let unix = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    nanos(unix.saturating_sub(ZERO_UNIX)).clamp(EARLIEST, LATEST)
}

pub(crate) fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_begin_where_the_wall_clock_has_them() {
        const MINUTE: Nanos = 60_000_000_000;
        let start = Instant::now();
        let check = |unix: u64, expected: Nanos| {
            let clock = Clock::default();
            let wall = UNIX_EPOCH + Duration::from_secs(unix);
            let now = clock.at(start, (start, wall));
            assert_eq!(now % MINUTE, expected, "{unix}");
            // Whatever the wall clock shows later.
            let later = start + Duration::from_nanos(7);
            assert_eq!(clock.at(later, (later, UNIX_EPOCH)), now + 7);
            let earlier = start - Duration::from_nanos(7);
            assert_eq!(clock.at(earlier, (later, wall)), now - 7);
        };
        check(1_767_323_045, 5_000_000_000);
        check(1_767_323_040, 0);
        check(0, EARLIEST % MINUTE);
        check(1 << 40, LATEST % MINUTE);
    }
}
