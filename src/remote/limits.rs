//! `lockgate limits`: which there are, how a key stands, another limit for a while.

mod text;

use std::time::Duration;

use chrono::{SecondsFormat, TimeDelta, Utc};
use clap::Subcommand;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use super::client::{Client, Failed};
use super::{Done, ExitCode, Gateway, finish, put};

/// `lockgate limits`.
#[derive(Clone, Debug, clap::Args)]
pub struct Limits {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    gateway: Gateway,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Lists the limits in use, with what became of requests.
    List {
        /// Only those whose names begin so: `routes/1`.
        #[arg(default_value = "")]
        beginning: String,
    },
    /// Tells how a key stands.
    Show {
        #[command(flatten)]
        of: Of,
    },
    /// Has a key begin anew.
    Reset {
        #[command(flatten)]
        of: Of,
    },
    /// Gives a key another limit for a while.
    Override {
        #[command(flatten)]
        of: Of,
        /// The limit instead of the configured count.
        #[arg(long, required_unless_present = "end", conflicts_with = "end")]
        limit: Option<u64>,
        /// Until when: `2030-01-31T12:00:00Z`.
        #[arg(long, value_name = "TIME", required_unless_present_any = ["end", "lasting"])]
        until: Option<String>,
        /// For how long instead: `90s`, `30m`, `2h`, `7d`.
        #[arg(long = "for", value_name = "TIME", value_parser = lasting, conflicts_with_all = ["end", "until"])]
        lasting: Option<Duration>,
        /// Ends it: the configured limit is in force again.
        #[arg(long)]
        end: bool,
    },
    /// Lists whom a limit refused most lately.
    Top {
        /// The limit, as `lockgate limits list` names it.
        rule: String,
        /// How many.
        #[arg(short, default_value_t = 20)]
        n: usize,
    },
}

/// Whose.
#[derive(Clone, Debug, clap::Args)]
struct Of {
    /// The limit, as `lockgate limits list` names it: `routes/1/limit/client`.
    rule: String,
    /// The value of each variable of its key, in order; an empty one for one without a value.
    key: Vec<String>,
    /// The client's address instead, where the key has no value.
    #[arg(long)]
    address: Option<String>,
    /// The route, where the limit counts by route and is configured for several.
    #[arg(long)]
    route: Option<String>,
    /// The service, where it counts by service.
    #[arg(long)]
    service: Option<String>,
    /// The consumer, where it counts by consumer; an empty one for requests without.
    #[arg(long)]
    consumer: Option<String>,
    /// The count, where it depends on the request.
    #[arg(long)]
    count: Option<u64>,
    /// The window in seconds, where it depends on the request.
    #[arg(long)]
    time_window: Option<u64>,
}

impl Of {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let keys = self.key.iter().map(|key| ("key", key.clone()));
        let number = |n: Option<u64>| n.map(|n| n.to_string());
        let more = [
            ("address", self.address.clone()),
            ("route", self.route.clone()),
            ("service", self.service.clone()),
            ("consumer", self.consumer.clone()),
            ("count", number(self.count)),
            ("time_window", number(self.time_window)),
        ];
        let more = more
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        keys.chain(more).collect()
    }

    /// Path and query of a question about the key.
    fn path(&self, below: &str) -> String {
        let query: Vec<String> = self
            .pairs()
            .iter()
            .map(|(name, value)| format!("{name}={}", encoded(value)))
            .collect();
        format!("{}{below}?{}", place(&self.rule), query.join("&"))
    }
}

/// Runs `lockgate limits`.
pub fn limits(args: &Limits) -> ExitCode {
    let json = args.gateway.json;
    match &args.what {
        What::List { beginning } => {
            let path = format!("limits?rule={}", encoded(beginning));
            finish(json, ask(args, "GET", &path, None), text::listed)
        }
        What::Show { of } => finish(json, ask(args, "GET", &of.path(""), None), text::standing),
        What::Reset { of } => finish(json, ask(args, "DELETE", &of.path(""), None), text::reset),
        What::Override { of, end: true, .. } => {
            let done = ask(args, "DELETE", &of.path("/override"), None);
            finish(json, done, text::overridden)
        }
        What::Override {
            of,
            limit,
            until,
            lasting,
            ..
        } => {
            let done = until_when(until.as_deref(), *lasting).and_then(|until| {
                let body = order(of, *limit, until);
                let path = format!("{}/override", place(&of.rule));
                ask(args, "PUT", &path, Some(&body))
            });
            finish(json, done, text::overridden)
        }
        What::Top { rule, n } => {
            let path = format!("{}/top?n={n}", place(rule));
            finish(json, ask(args, "GET", &path, None), text::top)
        }
    }
}

fn ask(args: &Limits, method: &str, path: &str, body: Option<&Value>) -> Done {
    Client::new(&args.gateway)?.ask(method, path, body)
}

fn order(of: &Of, limit: Option<u64>, until: String) -> Value {
    let mut body = Map::new();
    for (name, value) in of.pairs().into_iter().filter(|(name, _)| *name != "key") {
        put(&mut body, name, Some(value.into()));
    }
    put(&mut body, "key", Some(json!(of.key)));
    put(&mut body, "limit", limit.map(Value::from));
    put(&mut body, "until", Some(until.into()));
    Value::Object(body)
}

fn until_when(until: Option<&str>, lasting: Option<Duration>) -> Result<String, Failed> {
    if let Some(until) = until {
        return Ok(until.to_owned());
    }
    let lasting = lasting.unwrap_or_default();
    let end = TimeDelta::from_std(lasting)
        .ok()
        .and_then(|lasting| Utc::now().checked_add_signed(lasting));
    let end = end.ok_or_else(|| Failed::Text("that is too long".to_owned()))?;
    Ok(end.to_rfc3339_opts(SecondsFormat::Secs, true))
}

/// `90s`, `30m`, `2h`, `7d`.
fn lasting(text: &str) -> Result<Duration, String> {
    let wrong = || "write it as 90s, 30m, 2h, 7d".to_owned();
    let (number, unit) = text
        .split_at_checked(text.len().saturating_sub(1))
        .ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(seconds)
        .map(Duration::from_secs)
        .ok_or_else(wrong)
}

/// A limit's name as a path: it is made of names from the configuration.
fn place(rule: &str) -> String {
    let parts: Vec<String> = rule.split('/').map(encoded).collect();
    format!("limits/{}", parts.join("/"))
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_others_are_refused() {
        let check = |text: &str, expected: Option<u64>| {
            let got = lasting(text).ok();
            assert_eq!(got, expected.map(Duration::from_secs), "{text}");
        };
        check("90s", Some(90));
        check("2h", Some(7_200));
        check("7d", Some(604_800));
        for bad in [
            "",
            "s",
            "5",
            "-1s",
            "1.5h",
            "5w",
            "é",
            "99999999999999999999d",
            "999999999999999999d",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn keys_are_sent_as_they_are() {
        let of = Of {
            rule: "routes/a b/limit/client".to_owned(),
            key: vec!["a&b=c d/é".to_owned(), String::new()],
            address: None,
            route: Some("r".to_owned()),
            service: None,
            consumer: None,
            count: Some(5),
            time_window: None,
        };
        assert_eq!(
            of.path("/override"),
            "limits/routes/a%20b/limit/client/override?key=a%26b%3Dc%20d%2F%C3%A9&key=&route=r&count=5"
        );
        let body = order(&of, Some(7), "2030-01-31T12:00:00Z".to_owned());
        assert_eq!(body["key"], json!(["a&b=c d/é", ""]));
        assert_eq!((&body["limit"], &body["route"]), (&json!(7), &json!("r")));
    }
}
