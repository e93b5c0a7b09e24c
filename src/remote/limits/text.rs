//! Answers about limits as text, for people.

use std::fmt::Write;

use serde_json::Value;

/// Which limits there are.
pub(super) fn listed(told: &Value) -> String {
    let mut out = String::new();
    let limits = list(&told["limits"]);
    if limits.is_empty() {
        line(&mut out, "no limit is in use");
    }
    for limit in limits {
        let dry = match limit["dry_run"] == true {
            true => "  (only counts)",
            false => "",
        };
        line(
            &mut out,
            &format!(
                "{}  {}{dry}\n    key {}, by {}, counted {}",
                word(&limit["rule"]),
                word(&limit["limit"]),
                quoted(&limit["key"]),
                word(&limit["scope"]),
                word(&limit["mode"]),
            ),
        );
        let decisions = limit["decisions"].as_object();
        let counts = decisions.into_iter().flatten();
        let counts: Vec<String> = counts.map(|(name, n)| format!("{name} {n}")).collect();
        if !counts.is_empty() {
            let near = &limit["near"];
            line(
                &mut out,
                &format!("    {}; near the limit {near}", counts.join(", ")),
            );
        }
    }
    if let Some(more) = told["left_out"].as_u64().filter(|more| *more > 0) {
        line(
            &mut out,
            &format!("and {more} more: give the beginning of their names"),
        );
    }
    for one in list(&told["overrides"]) {
        line(
            &mut out,
            &format!(
                "override {} {}: {} until {} by {}",
                word(&one["rule"]),
                keys(&one["key"]["key"]),
                one["limit"],
                word(&one["until"]),
                one["by"].as_str().unwrap_or("somebody"),
            ),
        );
    }
    let table = &told["table"];
    line(
        &mut out,
        &format!(
            "table: {} of {} keys; passed uncounted {}, given up {}",
            table["live"], table["room"], table["unseen"], table["evicted"]
        ),
    );
    out
}

/// How a key stands.
pub(super) fn standing(told: &Value) -> String {
    let mut out = String::new();
    line(
        &mut out,
        &format!("{}  {}", word(&told["rule"]), word(&told["limit"])),
    );
    let instead = match &told["override_seconds_left"] {
        Value::Number(left) => format!(", by an override for {left} s more"),
        _ => String::new(),
    };
    line(
        &mut out,
        &format!(
            "used {} of {}{instead}; {} left; as good as new in {} s",
            told["used"], told["allowed"], told["remaining"], told["reset_seconds"]
        ),
    );
    line(
        &mut out,
        &format!("counted {}: {}", word(&told["mode"]), word(&told["why"])),
    );
    line(&mut out, &format!("bound: {}", word(&told["bound"])));
    line(
        &mut out,
        &format!("as seen by the gateway {}", word(&told["gateway"])),
    );
    out
}

/// A key began anew.
pub(super) fn reset(told: &Value) -> String {
    let known = match told["was_known"].as_bool() {
        Some(false) => "; nothing was counted for it",
        _ => "",
    };
    let mut out = String::new();
    let (rule, gateways) = (word(&told["rule"]), word(&told["gateways"]));
    line(
        &mut out,
        &format!("{rule}: the key begins anew; gateways: {gateways}{known}"),
    );
    out
}

/// A key has another limit, or no longer.
pub(super) fn overridden(told: &Value) -> String {
    let mut out = String::new();
    let rule = word(&told["rule"]);
    if told["ended"] == true {
        line(
            &mut out,
            &format!("{rule}: the configured limit is in force again"),
        );
    } else {
        let (limit, until) = (&told["limit"], word(&told["until"]));
        line(
            &mut out,
            &format!(
                "{rule} {}: {limit} until {until}",
                keys(&told["key"]["key"])
            ),
        );
    }
    out
}

/// Whom a limit refused.
pub(super) fn top(told: &Value) -> String {
    let mut out = String::new();
    if told["kept"] == false {
        line(
            &mut out,
            "not remembered: too many limits refuse somebody at the moment",
        );
    }
    let list = list(&told["top"]);
    if list.is_empty() && told["kept"] == true {
        line(&mut out, "nobody was refused lately");
    }
    for one in list {
        let (refused, at_least) = (&one["refused"], &one["at_least"]);
        let about = if refused == at_least {
            String::new()
        } else {
            format!(" (at least {at_least})")
        };
        line(
            &mut out,
            &format!("{:>8}{about}  {}", refused.to_string(), quoted(&one["key"])),
        );
    }
    out
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn keys(value: &Value) -> String {
    let keys: Vec<String> = list(value).iter().map(quoted).collect();
    keys.join(" ")
}

/// So that its ends show.
fn quoted(value: &Value) -> String {
    format!("`{}`", word(value))
}

/// Keys are what clients send: control characters must not reach a terminal.
fn line(out: &mut String, text: &str) {
    let shown = |c: char| match c {
        '\n' => c,
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    out.extend(text.chars().map(shown));
    // Writing to a text does not fail.
    let _ = writeln!(out);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_clients_send_does_no_harm_to_a_terminal() {
        let told = json!({"kept": true, "top": [
            {"key": "\u{1b}[2Jann", "refused": 5, "at_least": 5},
            {"key": "bob", "refused": 4, "at_least": 1},
        ]});
        assert_eq!(
            top(&told),
            "       5  `\u{fffd}[2Jann`\n       4 (at least 1)  `bob`\n"
        );
        assert_eq!(
            top(&json!({"kept": true, "top": []})),
            "nobody was refused lately\n"
        );
        let full = top(&json!({"kept": false, "top": []}));
        assert!(full.starts_with("not remembered"), "{full}");
    }

    #[test]
    fn limits_and_keys_as_text() {
        let told = json!({
            "limits": [{"rule": "routes/1/limit/a", "limit": "2 in 1 s", "key": "$remote_addr",
                "scope": "route", "mode": "local", "dry_run": true, "decisions": {"allow": 3, "reject": 1}, "near": 2}],
            "left_out": 4,
            "overrides": [{"rule": "routes/1/limit/a", "key": {"key": ["::1"]}, "limit": 9, "until": "T", "by": "ann"}],
            "table": {"live": 1, "room": 64, "exact": 0, "unseen": 0, "evicted": 0},
        });
        assert_eq!(
            listed(&told),
            "routes/1/limit/a  2 in 1 s  (only counts)\n    key `$remote_addr`, by route, counted local\n    \
             allow 3, reject 1; near the limit 2\nand 4 more: give the beginning of their names\n\
             override routes/1/limit/a `::1`: 9 until T by ann\n\
             table: 1 of 64 keys; passed uncounted 0, given up 0\n"
        );
        let told = json!({"rule": "r", "limit": "2 in 1 s", "used": 1, "allowed": 9, "remaining": 8,
            "reset_seconds": 0.5, "override_seconds_left": 7.0, "mode": "local", "why": "w", "bound": "b", "gateway": "g"});
        assert_eq!(
            standing(&told),
            "r  2 in 1 s\nused 1 of 9, by an override for 7.0 s more; 8 left; as good as new in 0.5 s\n\
             counted local: w\nbound: b\nas seen by the gateway g\n"
        );
    }
}
