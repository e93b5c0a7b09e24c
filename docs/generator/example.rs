//! Examples go through the gateway's own source, decoder and compiler, as a user's file does.

use std::path::PathBuf;

use lockgate::config::catalogue::Catalogue;
use lockgate::config::compile::instance::Workshop;
use lockgate::config::graph::Graph;
use lockgate::config::source::file::{FileSource, Format};
use lockgate::router::Mode;
use lockgate_plugin::{PluginDef, Problems, Shared, StateStore};
use serde_json::Value;

/// In front of an example that shows the `plugins` of a route only.
const ROUTE: &str =
    "routes:\n- id: example\n  uri: /*\n  upstream: { nodes: { \"127.0.0.1:1980\": 1 } }\n";

/// What is wrong with a plugin's examples.
pub(crate) fn mistakes(def: &PluginDef, examples: &[&str]) -> Vec<String> {
    let mut out = Vec::new();
    let mut used = false;
    for example in examples {
        match read(&whole(example)) {
            Ok(document) => {
                let schema = (def.schema)();
                for conf in configurations(&document, def) {
                    used = true;
                    out.extend(undocumented(conf, &schema));
                }
            }
            Err(problems) => out.extend(
                problems
                    .iter()
                    .map(|p| format!("the example is refused: {p}")),
            ),
        }
    }
    if !used && out.is_empty() {
        out.push("no example configures the plugin".to_owned());
    }
    out
}

/// The example as a file of its own.
fn whole(example: &str) -> String {
    let mut text = String::new();
    if example.starts_with("plugins:") {
        text.push_str(ROUTE);
        for line in example.lines() {
            text.push_str("  ");
            text.push_str(line);
            text.push('\n');
        }
    } else {
        text.push_str(example);
    }
    text.push_str("\n#END\n");
    text
}

/// Reads and compiles the file; a warning is as bad as an error. Every environment variable is set.
fn read(text: &str) -> Result<Value, Problems> {
    let file = Scratch::new(text)?;
    let mut source = FileSource::new(&file.0, Format::Yaml, |_| Some("a-value".to_owned()));
    let batch = source.load()?;
    let workshop = Workshop {
        catalogue: Catalogue::everything(lockgate_plugins::ALL),
        shared: Shared::default(),
        states: StateStore::default(),
        attr: Value::Null,
        metadata: Default::default(),
    };
    let mut graph = Graph::new(workshop, Mode::HostUri, None);
    let changes = graph.difference(batch.wanted());
    let mut applied = graph.apply(changes);
    applied.problems.extend(applied.warnings);
    applied.problems.extend(batch.warnings);
    applied.problems.into_result()?;
    Ok(batch.document.value().clone())
}

/// A file that is gone when this is.
struct Scratch(PathBuf);

impl Scratch {
    fn new(text: &str) -> Result<Scratch, Problems> {
        // Tests run beside each other in threads.
        let (process, thread) = (std::process::id(), std::thread::current().id());
        let name = format!("plugin-docs-{process}-{thread:?}.yaml");
        let file = Scratch(std::env::temp_dir().join(name));
        match std::fs::write(&file.0, text) {
            Ok(()) => Ok(file),
            Err(e) => Err(lockgate_plugin::Problem::new("", e.to_string()).into()),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left behind, it hurts nobody.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The plugin's configurations in the resources whose plugins run for requests.
fn configurations<'v>(document: &'v Value, def: &PluginDef) -> Vec<&'v Value> {
    let Some(lists) = document.as_object() else {
        return Vec::new();
    };
    let credentials = def.credential.is_some();
    lists
        .iter()
        .filter(|(kind, _)| !credentials || *kind != "consumers")
        .flat_map(|(_, list)| list.as_array().into_iter().flatten())
        .filter_map(|resource| resource.get("plugins")?.get(def.name))
        .collect()
}

/// Attributes that the schema lets pass, but that mean nothing.
fn undocumented(conf: &Value, schema: &Value) -> Vec<String> {
    let names = conf.as_object().into_iter().flat_map(|map| map.keys());
    names
        .filter(|name| *name != "_meta" && schema["properties"].get(name.as_str()).is_none())
        .map(|name| format!("the example sets `{name}`, which is no attribute"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, example: &str, expected: &[&str]) {
        let def = lockgate_plugins::ALL.iter().find(|def| def.name == name);
        let found = mistakes(def.unwrap(), &[example]);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (text, part) in found.iter().zip(expected) {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn examples_are_read_as_the_gateway_reads_them() {
        let echo = |text: &str, expected: &[&str]| check("echo", text, expected);
        echo("plugins:\n  echo: { body: x }\n", &[]);
        echo(
            "global_rules:\n- { id: 1, plugins: { echo: { body: x } } }\n",
            &[],
        );
        echo(
            "plugins:\n  echo: { body: 1 }\n",
            &["echo.body: wrong type"],
        );
        echo(
            "plugins:\n  echo: { body: x, boddy: x }\n",
            &["`boddy`, which is no attribute"],
        );
        echo(
            "plugins:\n  cors: {}\n",
            &["no example configures the plugin"],
        );
        echo("plugins: {", &["refused"]);
        check(
            "key-auth",
            "consumers:\n- { username: a, plugins: { key-auth: { key: k } } }\n",
            &["no example"],
        );
    }
}
