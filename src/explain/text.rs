//! An explanation as text, for somebody who is in a hurry.

use std::fmt::Write;

use super::report::{
    Answer, CandidateSeen, Explanation, Failed, PluginSeen, Runs, UpstreamSeen, Verdict,
};
use super::target::address;

/// The widest column of ids: some are long, and then the lines are ragged rather than wide.
const WIDEST: usize = 24;

/// The text; it ends with a line end.
pub(super) fn of(told: &Explanation) -> String {
    let mut out = String::new();
    let lines = [
        request(told),
        candidates(told),
        route(told),
        plugins(told),
        told.upstream.as_ref().map(upstream).unwrap_or_default(),
        vec![outcome(told.answer.as_ref())],
        told.notes
            .iter()
            .map(|note| format!("note: {note}"))
            .collect(),
    ];
    for line in lines.iter().flatten() {
        // Writing to a text does not fail.
        let _ = writeln!(out, "{}", clean(line));
    }
    out
}

/// Control characters come from the request or the configuration, and must not reach a terminal.
fn clean(line: &str) -> String {
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    line.chars().map(shown).collect()
}

fn request(told: &Explanation) -> Vec<String> {
    let seen = &told.request;
    let mut lines = vec![format!("{} {}", seen.method, seen.target)];
    if !seen.path.is_empty() {
        let matched = if seen.match_path.is_empty() || seen.match_path == seen.path {
            String::new()
        } else {
            format!(", matched as {}", seen.match_path)
        };
        lines.push(format!("  path    {}{matched}", seen.path));
    }
    lines.push(format!("  host    {} ({})", seen.host, seen.scheme));
    if !seen.client.is_empty() {
        lines.push(format!(
            "  client  {}, connected from {}",
            seen.client, seen.peer
        ));
    }
    if let Some(certificate) = &told.certificate {
        let name = seen.sni.as_deref().unwrap_or("(no name)");
        let found = match &certificate.ssl {
            Some(id) => format!("certificate of ssl {id}"),
            None => "no certificate: the handshake fails".to_owned(),
        };
        lines.push(format!("  tls     {name}, {found}"));
    }
    lines
}

fn candidates(told: &Explanation) -> Vec<String> {
    let all = &told.candidates;
    if told.request.match_path.is_empty() {
        // It did not come so far.
        return Vec::new();
    }
    let mut lines = vec![match all.len() {
        0 => "no route has this host and path".to_owned(),
        _ => "routes, in the order in which they are tried".to_owned(),
    }];
    let width = all.iter().map(|one| one.route.len()).max();
    let width = width.unwrap_or_default().min(WIDEST);
    let numbered = (1..).zip(all);
    lines.extend(numbered.map(|(number, one)| candidate(number, width, one)));
    if told.candidates_left_out > 0 {
        lines.push(format!("  and {} more", told.candidates_left_out));
    }
    if !told.other_hosts.is_empty() {
        lines.push("routes with this path and another host".to_owned());
        let line = |o: &super::OtherHost| format!("  {}  {}{}", o.route, o.host, o.uri);
        lines.extend(told.other_hosts.iter().map(line));
    }
    lines
}

fn candidate(number: usize, width: usize, seen: &CandidateSeen) -> String {
    let verdict = match &seen.verdict {
        Verdict::Chosen => "matches".to_owned(),
        Verdict::Behind => "would match, but is behind".to_owned(),
        Verdict::Failed(failed) => format!("first condition that failed: {}", all(failed)),
    };
    let host = seen.host.as_deref().unwrap_or("*");
    let priority = match seen.priority {
        0 => String::new(),
        priority => format!(" priority {priority}"),
    };
    format!(
        "  {number}. {:width$}  {host}{}{priority}  {verdict}",
        seen.route, seen.uri
    )
}

fn all(failed: &[Failed]) -> String {
    let one = |failed: &Failed| {
        let found = failed.found.as_deref().unwrap_or("(absent)");
        format!("{} {}, found {found}", failed.at, failed.wanted)
    };
    let texts: Vec<String> = failed.iter().map(one).collect();
    texts.join("; ")
}

fn route(told: &Explanation) -> Vec<String> {
    let Some(route) = &told.route else {
        return Vec::new();
    };
    let mut line = format!("route {}", route.id);
    if let Some(name) = &route.name {
        line.push_str(&format!(" `{name}`"));
    }
    if let Some(service) = &route.service {
        line.push_str(&format!(", service {service}"));
    }
    let mut lines = vec![line];
    for (name, value) in &route.params {
        lines.push(format!("  uri_param_{name} = {value}"));
    }
    if let Some(why) = &route.general_lane {
        lines.push(format!("  general lane: {why}"));
    }
    if let Some(consumer) = &told.consumer {
        let group = consumer.group.as_ref();
        let group = group.map(|group| format!(", group {group}"));
        lines.push(format!(
            "  consumer {}{}",
            consumer.name,
            group.unwrap_or_default()
        ));
    }
    lines
}

fn plugins(told: &Explanation) -> Vec<String> {
    if told.plugins.is_empty() {
        return Vec::new();
    }
    let mut lines = vec!["plugins".to_owned()];
    let width = told.plugins.iter().map(|plugin| plugin.name.len()).max();
    for plugin in &told.plugins {
        lines.push(plugin_line(plugin, width.unwrap_or_default()));
        let details = plugin.details.iter();
        lines.extend(details.map(|(name, value)| format!("      {name}: {value}")));
    }
    for phase in &told.phases {
        let acting = phase.plugins.iter();
        let names: Vec<String> = acting
            .map(|a| format!("{} ({})", a.name, a.level))
            .collect();
        lines.push(format!("  {}: {}", phase.phase, names.join(" > ")));
    }
    lines
}

fn plugin_line(plugin: &PluginSeen, width: usize) -> String {
    let runs = match &plugin.runs {
        Runs::Yes => String::new(),
        Runs::Disabled => "  off: _meta.disable".to_owned(),
        Runs::Filtered(failed) => format!("  does not run: {}", all(failed)),
        Runs::Unknown => "  runs or not: _meta.filter asks for the response".to_owned(),
        Runs::GivesWay => "  does not run: the route has its own".to_owned(),
        Runs::Twice => "  does not run: two global rules have it".to_owned(),
    };
    let id = plugin.id.as_deref().unwrap_or_default();
    let (name, priority, level) = (&plugin.name, plugin.priority, &plugin.level);
    format!("  {name:width$}  {priority:>6}  {level} {id}{runs}")
        .trim_end()
        .to_owned()
}

fn upstream(seen: &UpstreamSeen) -> Vec<String> {
    let mut lines = vec![format!(
        "upstream {}, {}, {}",
        seen.key, seen.scheme, seen.balance
    )];
    for node in &seen.nodes {
        let mut line = format!("  {}", address(&node.host, node.port));
        if let Some(address) = &node.address {
            line.push_str(&format!(" ({address})"));
        }
        line.push_str(&format!("  weight {}", node.weight));
        if node.priority != 0 {
            line.push_str(&format!(" priority {}", node.priority));
        }
        if node.in_flight > 0 {
            line.push_str(&format!(", {} in flight", node.in_flight));
        }
        if seen.next.as_deref() == Some(&address(&node.host, node.port)) {
            line.push_str("  <- next");
        }
        lines.push(line);
    }
    if seen.next.is_none() && seen.nodes.len() > 1 {
        lines.push("  which of them is next, only the running gateway knows".to_owned());
    }
    if let Some(host) = &seen.host {
        lines.push(format!("  Host: {host} (pass_host {})", seen.pass_host));
    }
    lines
}

fn outcome(answer: Option<&Answer>) -> String {
    match answer {
        None => "=> to the upstream, unless a plugin answers".to_owned(),
        Some(Answer {
            status,
            why,
            after_plugins,
        }) => {
            let unless = if *after_plugins {
                ", unless a plugin answers"
            } else {
                ""
            };
            format!("=> {status} from the gateway: {why}{unless}")
        }
    }
}
