//! Times as nginx writes them.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Datelike, Local, Timelike};

/// Seconds with three decimals.
pub(super) fn seconds(duration: Duration) -> String {
    let mut out = Vec::with_capacity(16);
    put_seconds(duration, &mut out);
    text(out)
}

/// The same, appended.
pub(super) fn put_seconds(duration: Duration, out: &mut Vec<u8>) {
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(digits.format(duration.as_secs()).as_bytes());
    out.push(b'.');
    let millis = duration.subsec_millis();
    out.extend_from_slice(&[digit(millis / 100), digit(millis / 10), digit(millis)]);
}

/// The last digit of a number.
fn digit(number: u32) -> u8 {
    b'0' + u8::try_from(number % 10).unwrap_or(0)
}

/// Digits and ASCII signs are text.
fn text(ascii: Vec<u8>) -> String {
    String::from_utf8(ascii).unwrap_or_default()
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// `30/Nov/2026:05:04:15 +0000`, in the machine's time zone. Written by hand: every log line has
/// one, and a format string would be parsed for each.
pub(super) fn time_local(time: SystemTime) -> String {
    let mut out = Vec::with_capacity(26);
    put_time_local(time, &mut out);
    text(out)
}

/// The same, appended.
pub(super) fn put_time_local(time: SystemTime, out: &mut Vec<u8>) {
    let time: DateTime<Local> = time.into();
    let month = MONTHS.get(time.month0() as usize).copied().unwrap_or("");
    let (sign, hours, minutes) = offset(&time);
    let two = |number: u32| [digit(number / 10), digit(number)];
    out.extend_from_slice(&two(time.day()));
    out.push(b'/');
    out.extend_from_slice(month.as_bytes());
    out.push(b'/');
    out.extend_from_slice(itoa::Buffer::new().format(time.year()).as_bytes());
    for part in [time.hour(), time.minute(), time.second()] {
        out.push(b':');
        out.extend_from_slice(&two(part));
    }
    out.extend_from_slice(if sign == '-' { b" -" } else { b" +" });
    for part in [hours, minutes] {
        out.extend_from_slice(&two(part.unsigned_abs()));
    }
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
