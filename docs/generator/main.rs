//! `plugin-docs`: writes one page for each plugin and an index, from what the code says.
//!
//! Nothing on a page is written twice: the text is the module documentation of the plugin, the
//! tables are its JSON Schema, which comes from the types and their documentation. Every example
//! goes through the gateway's own decoder first. What is missing is an error, all of it at once.
//!
//! ```text
//! cargo run --example plugin-docs -- docs/plugins
//! ```
#![allow(clippy::print_stderr)] // It is run by hand and by `make docs`.
#![cfg_attr(test, allow(clippy::needless_pass_by_value))] // `check(json!(…))` reads best by value.

mod attributes;
mod example;
mod page;
mod source;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lockgate_plugin::PluginDef;

use source::Source;

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1).map(PathBuf::from) else {
        eprintln!("usage: plugin-docs FOLDER");
        return ExitCode::FAILURE;
    };
    let (pages, mistakes) = pages(lockgate_plugins::ALL);
    if !mistakes.is_empty() {
        mistakes.iter().for_each(|text| eprintln!("docs: {text}"));
        return ExitCode::FAILURE;
    }
    match write(&folder, &pages) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("docs: cannot write to {}: {e}", folder.display());
            ExitCode::FAILURE
        }
    }
}

/// The pages by file name, and everything that the plugins leave unsaid.
fn pages(all: &'static [PluginDef]) -> (BTreeMap<String, String>, Vec<String>) {
    let (mut pages, mut mistakes) = (BTreeMap::new(), Vec::new());
    let mut listed = Vec::new();
    for def in all {
        let source = match Source::find(def.name) {
            Ok(source) => source,
            Err(text) => {
                mistakes.push(format!("{}: {text}", def.name));
                continue;
            }
        };
        let found = example::mistakes(def, &source.examples());
        mistakes.extend(
            found
                .into_iter()
                .map(|text| format!("{}: {text}", source.path)),
        );
        match page::plugin(def, &source) {
            Ok(text) => {
                pages.insert(format!("{}.md", def.name), text);
            }
            Err(found) => {
                mistakes.extend(
                    found
                        .into_iter()
                        .map(|text| format!("{}: {text}", source.path)),
                );
            }
        }
        listed.push((def, source));
    }
    pages.insert("README.md".to_owned(), page::index(&listed));
    (pages, mistakes)
}

/// Writes the pages, and removes those of plugins that are no more.
fn write(folder: &Path, pages: &BTreeMap<String, String>) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let is_page = path.extension().is_some_and(|e| e == "md");
        if is_page && name.is_none_or(|name| !pages.contains_key(name)) {
            std::fs::remove_file(&path)?;
        }
    }
    for (name, text) in pages {
        std::fs::write(folder.join(name), text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_plugin_leaves_anything_unsaid() {
        let (pages, mistakes) = super::pages(lockgate_plugins::ALL);
        assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
        assert_eq!(pages.len(), lockgate_plugins::ALL.len() + 1);
    }
}
