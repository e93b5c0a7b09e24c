//! Durations and sizes as nginx writes them.

use std::time::Duration;

use serde_json::Value;

/// What a duration looks like, for error texts.
pub(super) const DURATION: &str = "a duration such as 60s, 1m, 500ms, or a number of seconds";
/// What a size looks like, for error texts.
pub(super) const SIZE: &str = "a size such as 0, 512k, 10m, or a number of bytes";

/// `60s`, `1m`, `1h`, `500ms`, `1m30s`, or a number of seconds.
pub(super) fn duration(value: &Value) -> Option<Duration> {
    /// Longer than anyone waits; keeps sums of durations far from overflow.
    const LONGEST: f64 = 10.0 * 365.0 * 86_400.0;
    let seconds = match value {
        Value::Number(n) => n.as_f64()?,
        Value::String(text) => parts(text.trim())?,
        _ => return None,
    };
    (0.0..=LONGEST)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

fn parts(text: &str) -> Option<f64> {
    let (mut sum, mut rest) = (0.0, text);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "ms" => 0.001,
            "s" | "" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        rest = rest[letters..].trim_start();
        sum += number * unit;
    }
    Some(sum)
}

/// `0`, `512k`, `10m`, `1g`, or a number of bytes.
pub(super) fn size(value: &Value) -> Option<u64> {
    match value {
        Value::Number(n) => n.as_u64(),
        Value::String(text) => {
            let text = text.trim().to_ascii_lowercase();
            let digits = text
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(text.len());
            let number: u64 = text[..digits].parse().ok()?;
            let factor = match &text[digits..] {
                "" => 1,
                "k" => 1 << 10,
                "m" => 1 << 20,
                "g" => 1 << 30,
                _ => return None,
            };
            number.checked_mul(factor)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations() {
        let check = |value: Value, ms: Option<u64>| {
            assert_eq!(duration(&value), ms.map(Duration::from_millis), "{value}")
        };
        check(json!("60s"), Some(60_000));
        check(json!("1m30s"), Some(90_000));
        check(json!("500ms"), Some(500));
        check(json!("1h"), Some(3_600_000));
        check(json!(2.5), Some(2_500));
        check(json!("7"), Some(7_000));
        check(json!(0), Some(0));
        for bad in [
            json!("x"),
            json!(""),
            json!("5 parsecs"),
            json!(-1),
            json!(true),
            json!(1e300),
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn sizes() {
        let check = |value: Value, bytes: Option<u64>| assert_eq!(size(&value), bytes, "{value}");
        check(json!(0), Some(0));
        check(json!("10m"), Some(10 << 20));
        check(json!("512K"), Some(512 << 10));
        check(json!("1g"), Some(1 << 30));
        for bad in [
            json!("m"),
            json!("1t"),
            json!(-1),
            json!(1.5),
            json!("99999999999g"),
            json!([]),
        ] {
            check(bad, None);
        }
    }
}
