//! Answers as text, for people.

use std::fmt::Write;

use serde_json::Value;

use super::client::Failed;

/// A whole resource in one line is cut here: `--json` has all of it.
const LONGEST_VALUE: usize = 240;
/// Routes that are named.
const MOST_ROUTES: usize = 10;

/// What a plan says. `file` is what it was made from.
pub(super) fn plan(plan: &Value, file: Option<&str>) -> String {
    let mut out = changes(plan);
    out.push_str(&touched(plan));
    out.push_str(&requests(&plan["requests"]));
    if let (Some(revision), Some(file)) = (plan["revision"].as_u64(), file)
        && !list(&plan["changes"]).is_empty()
    {
        line(
            &mut out,
            format_args!("to do it: lockgate apply {file} --expect {revision}"),
        );
    }
    out
}

/// What was done.
pub(super) fn applied(done: &Value) -> String {
    let mut out = changes(done);
    let strangers = &done["not_in_history"];
    for (name, what) in [
        ("kept", "stays: it is not in the history"),
        (
            "replaced",
            "was replaced: it was written by something that keeps no history",
        ),
    ] {
        for item in list(&strangers[name]) {
            line(
                &mut out,
                format_args!(
                    "  {} {what} (revision {})",
                    word(&item["resource"]),
                    item["revision"]
                ),
            );
        }
    }
    if list(&done["changes"]).is_empty() {
        return out;
    }
    let revision = &done["revision"];
    line(&mut out, format_args!("done: revision {revision}"));
    if let Some(seconds) = done["confirm"]["within_seconds"].as_u64() {
        line(
            &mut out,
            format_args!(
                "it goes back by itself in {seconds} s, unless: lockgate confirm {revision}"
            ),
        );
    } else {
        line(
            &mut out,
            format_args!("to take it back: lockgate rollback --undo {revision}"),
        );
    }
    out
}

/// The list of changes.
pub(super) fn history(history: &Value) -> String {
    let mut out = String::new();
    let waits = &history["waits"];
    if let Some(revision) = waits["revision"].as_u64() {
        line(
            &mut out,
            format_args!(
                "revision {revision} goes back by itself at {}, unless: lockgate confirm {revision}",
                word(&waits["goes_back_at"])
            ),
        );
    }
    let entries = list(&history["history"]);
    if entries.is_empty() {
        line(&mut out, format_args!("nothing was changed so far"));
    }
    for entry in entries {
        out.push_str(&head(entry));
        let resources: Vec<String> = list(&entry["changes"])
            .iter()
            .map(|change| format!("{} {}", sign(change), word(&change["resource"])))
            .collect();
        if !resources.is_empty() {
            line(
                &mut out,
                format_args!("    {}", shortened(&resources.join("  "))),
            );
        }
    }
    out
}

/// One change.
pub(super) fn change(entry: &Value) -> String {
    let mut out = head(entry);
    if let Some(kept) = entry["kept"].as_str().filter(|kept| *kept != "both") {
        line(
            &mut out,
            format_args!("it was large: what is kept of each resource is: {kept}"),
        );
    }
    list(&entry["changes"])
        .iter()
        .for_each(|change| resource(&mut out, change));
    out
}

/// What stays.
pub(super) fn confirmed(done: &Value) -> String {
    format!("confirmed: revision {} stays\n", done["confirmed"])
}

/// What went wrong.
pub(super) fn failed(failed: &Failed) -> String {
    match failed {
        Failed::Text(text) => format!("error: {text}\n"),
        Failed::Problems(problems) => {
            let mut out = String::new();
            for problem in problems {
                line(&mut out, format_args!("error: {problem}"));
            }
            let plural = if problems.len() == 1 {
                "problem"
            } else {
                "problems"
            };
            line(
                &mut out,
                format_args!("{} {plural}; nothing was changed", problems.len()),
            );
            out
        }
        Failed::Refused(answer) => {
            let problems = list(&answer["problems"]);
            if problems.len() > 1 {
                let shown = problems.iter().map(|problem| {
                    let (path, message) = (word(&problem["path"]), word(&problem["message"]));
                    let colon = if path.is_empty() { "" } else { ": " };
                    format!("error: {path}{colon}{message}\n")
                });
                return shown.collect();
            }
            let text = answer["error_msg"].as_str();
            let more = answer["description"].as_str();
            let text = text.map_or_else(|| answer.to_string(), str::to_owned);
            match more {
                Some(more) => format!("error: {text}: {more}\n"),
                None => format!("error: {text}\n"),
            }
        }
    }
}

/// Who, when and what.
fn head(entry: &Value) -> String {
    let who = match (entry["key"].as_str(), entry["client"].as_str()) {
        (Some(key), Some(client)) => format!("{key} from {client}"),
        (None, Some(client)) => format!("from {client}"),
        (Some(key), None) => key.to_owned(),
        (None, None) if entry["action"] == "expired" => "nobody".to_owned(),
        (None, None) => "the gateway".to_owned(),
    };
    let comment = entry["comment"]
        .as_str()
        .map(|c| format!(": {c}"))
        .unwrap_or_default();
    let revision = match entry["revision"].as_u64() {
        Some(revision) => format!("revision {revision}"),
        None => "by itself".to_owned(),
    };
    format!(
        "{revision}  {}  {who}  {}{comment}\n",
        word(&entry["time"]),
        word(&entry["action"])
    )
}

fn changes(plan: &Value) -> String {
    let mut out = String::new();
    if plan["format"] == "adc" {
        line(&mut out, format_args!("read as a file of ADC"));
    }
    let changes = list(&plan["changes"]);
    changes.iter().for_each(|change| resource(&mut out, change));
    let count = |action: &str| changes.iter().filter(|c| c["action"] == action).count();
    let unchanged = &plan["unchanged"];
    if changes.is_empty() {
        line(
            &mut out,
            format_args!("no change: {unchanged} are so already"),
        );
    } else {
        line(
            &mut out,
            format_args!(
                "{} to create, {} to change, {} to delete; {unchanged} are so already",
                count("create"),
                count("update"),
                count("delete"),
            ),
        );
    }
    out
}

/// A resource with its fields.
fn resource(out: &mut String, change: &Value) {
    line(
        out,
        format_args!("{} {}", sign(change), word(&change["resource"])),
    );
    for field in list(&change["fields"]) {
        let path = word(&field["path"]);
        let path = if path.is_empty() {
            String::new()
        } else {
            format!("{path}: ")
        };
        let side = |name: &str| field.get(name).map(|value| shortened(&value.to_string()));
        let text = match (side("before"), side("after")) {
            (Some(a), Some(b)) if a == b => format!("{b} (another secret)"),
            (Some(a), Some(b)) => format!("{a} -> {b}"),
            (Some(a), None) => format!("- {a}"),
            (None, Some(b)) => format!("+ {b}"),
            (None, None) => String::new(),
        };
        line(out, format_args!("    {path}{text}"));
    }
}

fn sign(change: &Value) -> &'static str {
    match change["action"].as_str() {
        Some("create") => "+",
        Some("delete") => "-",
        _ => "~",
    }
}

fn touched(plan: &Value) -> String {
    match &plan["routes"] {
        Value::Array(routes) if routes.is_empty() => String::new(),
        Value::Array(routes) => {
            let named: Vec<&str> = routes
                .iter()
                .filter_map(Value::as_str)
                .take(MOST_ROUTES)
                .collect();
            let more = routes.len() - named.len();
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            format!("routes touched: {}{more}\n", named.join(", "))
        }
        _ => "routes touched: all\n".to_owned(),
    }
}

fn requests(seen: &Value) -> String {
    let mut out = String::new();
    if seen.is_null() {
        return out;
    }
    let source = match seen["source"].as_str() {
        Some("recent") => "of the latest requests",
        _ => "of the requests given",
    };
    line(
        &mut out,
        format_args!(
            "{source}, {} of {} would come to something else",
            seen["changed"], seen["looked_at"]
        ),
    );
    for group in list(&seen["outcomes"]) {
        let examples = words(&group["examples"]).join(", ");
        line(
            &mut out,
            format_args!("  {} x {}", group["count"], examples),
        );
        line(
            &mut out,
            format_args!("      differs: {}", words(&group["differs"]).join(", ")),
        );
        line(
            &mut out,
            format_args!("      now:  {}", outcome(&group["before"])),
        );
        line(
            &mut out,
            format_args!("      then: {}", outcome(&group["after"])),
        );
    }
    if let Some(more) = seen["outcomes_left_out"].as_u64().filter(|more| *more > 0) {
        line(
            &mut out,
            format_args!("  and {more} more kinds of difference"),
        );
    }
    for skipped in list(&seen["skipped"]) {
        line(
            &mut out,
            format_args!(
                "  line {} was not understood: {}: {}",
                skipped["line"],
                word(&skipped["request"]),
                word(&skipped["why"])
            ),
        );
    }
    if let Some(more) = seen["skipped_left_out"].as_u64().filter(|more| *more > 0) {
        line(&mut out, format_args!("  nor were {more} more lines"));
    }
    out
}

fn outcome(outcome: &Value) -> String {
    let mut parts = Vec::new();
    match outcome["route"].as_str() {
        Some(route) => parts.push(format!("route {route}")),
        None => parts.push("no route".to_owned()),
    }
    let plugins = words(&outcome["plugins"]);
    if !plugins.is_empty() {
        parts.push(format!("plugins {}", plugins.join(" > ")));
    }
    match (outcome["answer"].as_str(), outcome["upstream"].as_str()) {
        (Some(answer), _) => parts.push(format!("answers {answer}")),
        (None, Some(upstream)) => {
            let nodes = words(&outcome["nodes"]).join(", ");
            parts.push(format!("to {nodes} by {upstream}"));
        }
        (None, None) => {}
    }
    parts.join(", ")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn words(value: &Value) -> Vec<&str> {
    list(value).iter().filter_map(Value::as_str).collect()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= LONGEST_VALUE {
        return text.to_owned();
    }
    let cut: String = text.chars().take(LONGEST_VALUE).collect();
    format!("{cut}...")
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plan_as_text() {
        let got = plan(
            &json!({
                "revision": 41, "unchanged": 3, "routes": ["r"],
                "changes": [
                    {"action": "update", "resource": "routes/r", "fields": [
                        {"path": "uri", "before": "/a", "after": "/b"},
                        {"path": "plugins.csrf.key", "before": "***", "after": "***"},
                        {"path": "host", "before": "h"},
                        {"path": "desc", "after": "d"}]},
                    {"action": "create", "resource": "upstreams/u", "fields": [{"path": "", "after": {"nodes": {}}}]},
                    {"action": "delete", "resource": "routes/x", "fields": [{"path": "", "before": {}}]}],
                "requests": {"source": "recent", "looked_at": 9, "changed": 2, "outcomes_left_out": 0,
                    "outcomes": [{"count": 2, "differs": ["route", "answer"], "examples": ["GET http://h/a"],
                        "before": {"route": "r", "answer": null, "plugins": ["csrf"], "upstream": "http roundrobin", "nodes": ["a:1 (1)"]},
                        "after": {"route": null, "answer": "404 no route", "plugins": [], "upstream": null, "nodes": []}}],
                    "skipped": [{"line": 7, "request": "x y z", "why": "it is none"}], "skipped_left_out": 0},
            }),
            Some("new.yaml"),
        );
        let expected = "\
~ routes/r
    uri: \"/a\" -> \"/b\"
    plugins.csrf.key: \"***\" (another secret)
    host: - \"h\"
    desc: + \"d\"
+ upstreams/u
    + {\"nodes\":{}}
- routes/x
    - {}
1 to create, 1 to change, 1 to delete; 3 are so already
routes touched: r
of the latest requests, 2 of 9 would come to something else
  2 x GET http://h/a
      differs: route, answer
      now:  route r, plugins csrf, to a:1 (1) by http roundrobin
      then: no route, answers 404 no route
  line 7 was not understood: x y z: it is none
to do it: lockgate apply new.yaml --expect 41
";
        assert_eq!(got, expected);
    }
}
