//! Times as nginx writes them.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Datelike, Local, Timelike};

/// Seconds with three decimals.
pub(super) fn seconds(duration: Duration) -> String {
    let mut out = String::with_capacity(16);
    let _ = write!(
        out,
        "{}.{:03}",
        duration.as_secs(),
        duration.subsec_millis()
    );
    out
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// `30/Nov/2026:05:04:15 +0000`, in the machine's time zone. Written by hand: every log line has
/// one, and a format string would be parsed for each.
pub(super) fn time_local(time: SystemTime) -> String {
    let time: DateTime<Local> = time.into();
    let month = MONTHS.get(time.month0() as usize).copied().unwrap_or("");
    let (sign, hours, minutes) = offset(&time);
    let mut out = String::with_capacity(26);
    let _ = write!(
        out,
        "{:02}/{month}/{}:{:02}:{:02}:{:02} {sign}{hours:02}{minutes:02}",
        time.day(),
        time.year(),
        time.hour(),
        time.minute(),
        time.second(),
    );
    out
}

/// `2026-11-30T05:04:15+00:00`, in the machine's time zone.
pub(super) fn time_iso8601(time: SystemTime) -> String {
    let time: DateTime<Local> = time.into();
    let (sign, hours, minutes) = offset(&time);
    let mut out = String::with_capacity(25);
    let _ = write!(
        out,
        "{}-{:02}-{:02}T{:02}:{:02}:{:02}{sign}{hours:02}:{minutes:02}",
        time.year(),
        time.month(),
        time.day(),
        time.hour(),
        time.minute(),
        time.second(),
    );
    out
}

fn offset(time: &DateTime<Local>) -> (char, i32, i32) {
    let seconds = time.offset().local_minus_utc();
    let sign = if seconds < 0 { '-' } else { '+' };
    (sign, seconds.abs() / 3600, seconds.abs() / 60 % 60)
}
