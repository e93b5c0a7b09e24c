//! Which key somebody means, and what with it.

use std::net::IpAddr;
use std::time::Duration;

use chrono::DateTime;
use lockgate_limit::Wanted;
use lockgate_plugin::{Problem, Problems};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Bytes of a text: as much as a head of a request may have.
const LONGEST: usize = 32 << 10;
/// Variables of a key.
const MOST_VALUES: usize = 32;
/// Numbers above this are not exact everywhere, and no limit can be there.
const MOST: u64 = (1 << 53) - 1;
/// Seconds for which another limit may be in force: a month. What is to stay longer belongs into the
/// configuration.
pub(crate) const LONGEST_OVERRIDE: u64 = 31 * 86_400;

/// A key in the words of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Named {
    /// The values of its variables.
    pub(crate) key: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    route: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    consumer: Option<String>,
    /// Where the limit depends on the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// Where the window depends on the request. Unit: seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_window: Option<u64>,
}

/// The arguments that name a key.
const ARGUMENTS: &str = "key, address, route, service, consumer, count, time_window";

impl Named {
    /// From the arguments of a query.
    ///
    /// # Errors
    /// Every one that is not understood.
    pub(crate) fn of_args(args: &[(String, String)]) -> Result<Named, Problems> {
        let mut out = Problems::default();
        let mut named = Named::default();
        for (name, value) in args {
            named.put(name, value, &mut out);
        }
        out.into_result().map(|()| named)
    }

    fn put(&mut self, name: &str, value: &str, out: &mut Problems) {
        if value.len() > LONGEST {
            out.add(name, format!("longer than {LONGEST} bytes"));
            return;
        }
        let text = || Some(value.to_owned());
        match name {
            "key" if self.key.len() == MOST_VALUES => {
                out.add(name, format!("more than {MOST_VALUES} values"));
            }
            "key" => self.key.push(value.to_owned()),
            "route" => self.route = text(),
            "service" => self.service = text(),
            "consumer" => self.consumer = text(),
            "address" => match value.parse() {
                Ok(address) => self.address = Some(address),
                Err(_) => out.add(name, format!("`{}` is no address", shortened(value))),
            },
            "count" => self.count = number(name, value.parse().ok(), out),
            "time_window" => self.time_window = number(name, value.parse().ok(), out),
            // The key for the Admin API may come so.
            "api_key" => {}
            _ => {
                let text = format!("unknown argument `{}`", shortened(name));
                out.push(Problem::new(shortened(name), text).hint(format!("allowed: {ARGUMENTS}")));
            }
        }
    }

    fn put_json(&mut self, name: &str, value: &Value, out: &mut Problems) {
        match (name, value) {
            (_, Value::Null) => {}
            ("key", Value::Array(list)) => {
                for (at, value) in list.iter().enumerate() {
                    match value.as_str() {
                        Some(text) => self.put("key", text, out),
                        None => out.add(&format!("key[{at}]"), "expected a text"),
                    }
                }
            }
            ("count" | "time_window", Value::Number(n)) => self.put(name, &n.to_string(), out),
            (_, Value::String(text)) => self.put(name, text, out),
            ("key" | "address" | "route" | "service" | "consumer", _) => {
                out.add(name, "expected a text");
            }
            // It names those that there are.
            _ => self.put(name, "", out),
        }
    }

    /// A key with one variable.
    #[cfg(test)]
    pub(crate) fn of(value: &str) -> Named {
        Named {
            key: vec![value.to_owned()],
            ..Named::default()
        }
    }

    /// The question that a limit understands.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            values: self.key.clone(),
            address: self.address,
            route: self.route.clone(),
            service: self.service.clone(),
            consumer: self.consumer.clone(),
            count: self.count,
            window: self.time_window.map(Duration::from_secs),
        }
    }

    /// Without what is no secret, for a log or a history: who reads that need not know whose key it is.
    pub(crate) fn masked(&self) -> String {
        let values: Vec<String> = self.key.iter().map(|value| masked(value)).collect();
        values.join(" ")
    }

    /// The same as JSON.
    pub(crate) fn hidden(&self) -> Named {
        let key = self.key.iter().map(|value| masked(value)).collect();
        Named {
            key,
            ..self.clone()
        }
    }
}

/// How a key begins: enough to know it again, not enough to use it.
pub(super) fn masked(value: &str) -> String {
    let most = (value.chars().count() / 3).min(6);
    let shown: String = value.chars().take(most).collect();
    format!("{shown}…")
}

fn number(name: &str, number: Option<u64>, out: &mut Problems) -> Option<u64> {
    let fits = number.filter(|n| (1..=MOST).contains(n));
    if fits.is_none() {
        out.add(name, "expected a whole number from 1 to 2^53 - 1");
    }
    fits
}

/// Another limit for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instead {
    pub(crate) named: Named,
    pub(crate) limit: u64,
    /// Seconds since 1970.
    pub(crate) until: u64,
}

impl Instead {
    /// Reads `{key, limit, until}`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn read(body: &Value, now: u64) -> Result<Instead, Problems> {
        let Value::Object(map) = body else {
            return Err(Problem::new("", "expected an object with `key`, `limit`, `until`").into());
        };
        let mut out = Problems::default();
        let mut named = Named::default();
        for (name, value) in map {
            match name.as_str() {
                "limit" | "until" => {}
                "api_key" | "count" => {
                    let text = format!("unknown key `{name}`");
                    out.push(Problem::new(name.as_str(), text).hint("allowed: key, limit, until"));
                }
                _ => named.put_json(name, value, &mut out),
            }
        }
        let limit = match map.get("limit") {
            None => {
                out.add("limit", "required: the limit instead of the configured one");
                None
            }
            Some(value) => number("limit", value.as_u64(), &mut out),
        };
        let until = match map.get("until") {
            None => {
                out.add("until", "required: nothing stays for good by accident");
                None
            }
            Some(value) => until(value, now, &mut out),
        };
        out.into_result()?;
        Ok(Instead {
            named,
            limit: limit.unwrap_or_default(),
            until: until.unwrap_or_default(),
        })
    }
}

fn until(value: &Value, now: u64, out: &mut Problems) -> Option<u64> {
    let read = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => {
            let time = DateTime::parse_from_rfc3339(text).ok();
            time.and_then(|time| u64::try_from(time.timestamp()).ok())
        }
        _ => None,
    };
    match read {
        None => out.add(
            "until",
            "expected a time as 2030-01-31T12:00:00Z, or seconds since 1970",
        ),
        Some(until) if until <= now => out.add("until", "it is over"),
        Some(until) if until - now > LONGEST_OVERRIDE => {
            let days = LONGEST_OVERRIDE / 86_400;
            let text = format!("more than {days} days ahead: write it into the configuration");
            out.add("until", text);
        }
        Some(until) => return Some(until),
    }
    None
}

fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn keys_are_named_by_arguments() {
        let check = |query: &[(&str, &str)], expected: Result<&[&str], &str>| {
            let args: Vec<_> = query
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect();
            let got = Named::of_args(&args);
            let got = got.map(|named| named.key).map_err(|p| p.to_string());
            let expected = expected.map(|keys| keys.iter().map(|k| (*k).to_owned()).collect());
            assert_eq!(got, expected.map_err(str::to_owned), "{query:?}");
        };
        check(&[("key", "a"), ("key", ""), ("route", "1")], Ok(&["a", ""]));
        check(&[("address", "x")], Err("address: `x` is no address"));
        let number = "count: expected a whole number from 1 to 2^53 - 1";
        for bad in ["0", "-1", "1.5", "9007199254740992", "x", ""] {
            check(&[("count", bad)], Err(number));
        }
        let unknown = format!("keys: unknown argument `keys` (allowed: {ARGUMENTS})");
        check(&[("keys", "a")], Err(&unknown));
        let long = "x".repeat(1 << 20);
        check(&[("key", &long)], Err("key: longer than 32768 bytes"));
    }

    #[test]
    fn overrides_are_bounded() {
        let check = |body: Value, expected: Result<(u64, u64), &str>| {
            let got = Instead::read(&body, NOW);
            let got = got.map(|o| (o.limit, o.until)).map_err(|p| p.to_string());
            assert_eq!(got, expected.map_err(str::to_owned), "{body}");
        };
        let soon = NOW + 60;
        check(
            json!({"key": "a", "limit": 5, "until": soon}),
            Ok((5, soon)),
        );
        let text = json!({"key": ["a", "b"], "limit": 5, "until": "2027-01-15T08:01:00Z"});
        check(text, Ok((5, NOW + 60)));
        let none = "limit: required: the limit instead of the configured one\n\
                    until: required: nothing stays for good by accident";
        check(json!({"key": "a"}), Err(none));
        let limit = "limit: expected a whole number from 1 to 2^53 - 1";
        for bad in [
            json!(0),
            json!(-1),
            json!(1.5),
            json!(1u64 << 53),
            json!("5"),
        ] {
            check(json!({"key": "a", "limit": bad, "until": soon}), Err(limit));
        }
        let until = |until: Value| json!({"key": "a", "limit": 5, "until": until});
        check(until(json!(NOW)), Err("until: it is over"));
        check(
            until(json!(NOW + LONGEST_OVERRIDE + 1)),
            Err("until: more than 31 days ahead: write it into the configuration"),
        );
        check(
            until(json!("tomorrow")),
            Err("until: expected a time as 2030-01-31T12:00:00Z, or seconds since 1970"),
        );
        check(
            json!([]),
            Err("expected an object with `key`, `limit`, `until`"),
        );
        check(
            json!({"key": 1, "limit": 5, "until": soon}),
            Err("key: expected a text"),
        );
    }

    #[test]
    fn a_masked_key_is_not_the_key() {
        assert_eq!(Named::of("192.0.2.17").masked(), "192…");
        assert_eq!(Named::of("a").masked(), "…");
        assert_eq!(Named::of(&"é".repeat(100)).masked(), "éééééé…");
    }
}
