//! Markdown: the page of a plugin, and the index.

use std::fmt::Write;

use lockgate_plugin::{Phase, PluginDef};
use serde_json::Value;

use crate::attributes::{Row, rows};
use crate::source::Source;

/// The page of one plugin.
///
/// # Errors
/// Everything that its types leave unsaid.
pub(crate) fn plugin(def: &PluginDef, source: &Source) -> Result<String, Vec<String>> {
    let mut mistakes = Vec::new();
    let mut out = String::new();
    let Source { path, summary, .. } = source;
    line(
        &mut out,
        &format!("<!-- Written by `make docs` from {path}; edit that. -->"),
    );
    line(&mut out, &format!("# {}", def.name));
    line(&mut out, &format!("{}.", capital(summary)));
    if !source.text.is_empty() {
        line(&mut out, &source.text);
    }
    line(&mut out, &facts(def, source));
    line(&mut out, "## Example");
    line(&mut out, &source.example);
    section(&mut out, "Attributes", &(def.schema)(), &mut mistakes);
    if let Some(credential) = def.credential {
        let schema = (credential.schema)();
        section(&mut out, "Attributes on a consumer", &schema, &mut mistakes);
    }
    if let Some((metadata, _)) = def.metadata {
        section(&mut out, "Plugin metadata", &metadata(), &mut mistakes);
    }
    for text in source.sections.lines() {
        let heading = text.starts_with("# ");
        let _ = writeln!(out, "{}{text}", if heading { "#" } else { "" });
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    if mistakes.is_empty() {
        Ok(out)
    } else {
        Err(mistakes)
    }
}

/// The table of what is not an attribute.
fn facts(def: &PluginDef, source: &Source) -> String {
    let mut out = String::from("| | |\n| --- | --- |\n");
    let mut fact = |name: &str, text: &str| {
        let _ = writeln!(out, "| {name} | {text} |");
    };
    fact("priority", &def.priority.to_string());
    fact("phases", &phases(def));
    let owners = "route, service, plugin config, consumer group, global rule";
    match def.credential {
        Some(_) => {
            fact("configured on", owners);
            fact("credential on", "consumer, or a credential of a consumer");
        }
        None => fact("configured on", &format!("{owners}, consumer")),
    }
    if def.metadata.is_some() {
        fact(
            "metadata",
            &format!("`plugin_metadata` with the id `{}`", def.name),
        );
    }
    if def.prefer_route {
        fact("on a route and in a global rule", "only the route's acts");
    }
    fact("source", &format!("[{0}](../../{0})", source.path));
    out
}

fn phases(def: &PluginDef) -> String {
    let phases = Phase::ALL
        .into_iter()
        .filter(|phase| def.phases.has(*phase));
    phases.map(Phase::name).collect::<Vec<_>>().join(", ")
}

/// A heading, what the type says, and its attributes.
fn section(out: &mut String, title: &str, schema: &Value, mistakes: &mut Vec<String>) {
    line(out, &format!("## {title}"));
    match schema["description"].as_str() {
        // Every type begins with its name, which the page has said already.
        Some(text) => match text.split_once('.') {
            Some((first, rest)) if first.ends_with('`') && rest.trim().is_empty() => {}
            Some((first, rest)) if first.ends_with('`') => line(out, rest.trim_start()),
            _ => line(out, text),
        },
        None => mistakes.push(format!("{title}: the type has no documentation")),
    }
    let rows = rows(schema, mistakes);
    let mut table = String::from(
        "| name | type | default | allowed | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for Row {
        name,
        kind,
        need,
        rules,
        meaning,
    } in &rows
    {
        let cells = [&format!("`{name}`"), kind, need, &rules.join("; "), meaning];
        let cells = cells.map(|text| cell(text));
        let _ = writeln!(table, "| {} |", cells.join(" | "));
    }
    line(out, &table);
}

/// The list of all plugins.
pub(crate) fn index(listed: &[(&PluginDef, Source)]) -> String {
    let mut out = String::new();
    line(
        &mut out,
        "<!-- Written by `make docs` from the plugins and docs/generator/index.md. -->",
    );
    line(&mut out, include_str!("index.md"));
    let mut table =
        String::from("| plugin | does | priority | phases |\n| --- | --- | --- | --- |\n");
    for (def, source) in listed {
        let name = def.name;
        let (summary, phases) = (cell(&source.summary), phases(def));
        let _ = writeln!(
            table,
            "| [{name}]({name}.md) | {summary} | {} | {phases} |",
            def.priority
        );
    }
    out.push_str(&table);
    out
}

/// A block, and an empty line.
fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push_str("\n\n");
}

/// A text that fits into a cell.
fn cell(text: &str) -> String {
    text.trim()
        .replace('|', "\\|")
        .replace("\n\n", "<br>")
        .replace('\n', " ")
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}
