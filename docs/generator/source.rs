//! The documentation of a plugin's module: `//!` lines at the top of the file that names it.
//!
//! ```text
//! //! `echo`: puts text before, after or in place of the response body.
//! //!
//! //! More about it, for users: the page begins with this text.
//! //!
//! //! ```yaml
//! //! plugins: { echo: { before_body: "hi" } }
//! //! ```
//! //!
//! //! # Answers
//! //!
//! //! Sections follow the tables of attributes.
//! ```

use std::path::{Path, PathBuf};

/// Where plugins are.
const PLUGINS: &str = "plugins";

/// The file of a plugin, and what its documentation says.
pub(crate) struct Source {
    /// From the root of the repository.
    pub(crate) path: String,
    /// One sentence, without the name and the full stop.
    pub(crate) summary: String,
    /// What follows the first paragraph, up to the first example.
    pub(crate) text: String,
    /// From the first example on.
    pub(crate) example: String,
    /// From the first heading on, if there is one.
    pub(crate) sections: String,
}

impl Source {
    /// Finds and reads the file of the plugin.
    ///
    /// # Errors
    /// In words, when there is no such file or its documentation has another form.
    pub(crate) fn find(name: &str) -> Result<Source, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let line = format!("const NAME: &'static str = \"{name}\";");
        let mut folders = vec![root.join(PLUGINS)];
        while let Some(folder) = folders.pop() {
            for path in entries(&folder)? {
                if path.is_dir() {
                    // The contract and the tests name plugins of their own.
                    if !path.ends_with("api") && !path.ends_with("tests") {
                        folders.push(path);
                    }
                } else if path.extension().is_some_and(|e| e == "rs") {
                    let text = std::fs::read_to_string(&path).map_err(|e| e.to_string())?;
                    if text.contains(&line) {
                        let path = path.strip_prefix(root).unwrap_or(&path);
                        let path = path.display().to_string();
                        return Source::read(name, &path, &text)
                            .map_err(|text| format!("{path}: {text}"));
                    }
                }
            }
        }
        Err(format!("no file in {PLUGINS} has the line `{line}`"))
    }

    fn read(name: &str, path: &str, file: &str) -> Result<Source, String> {
        let doc: Vec<&str> = file
            .lines()
            .map_while(|line| line.strip_prefix("//!"))
            .map(|line| line.strip_prefix(' ').unwrap_or(line))
            .collect();
        let doc = doc.join("\n");
        let first = format!("`{name}`: ");
        let Some(doc) = doc.strip_prefix(&first) else {
            return Err(format!("the documentation does not begin with \"{first}\""));
        };
        // Links to items work in rustdoc only.
        if doc.contains("[`") {
            return Err("the documentation names items of the code; the page is for users".into());
        }
        let (summary, rest) = doc.split_once("\n\n").unwrap_or((doc, ""));
        let Some((text, rest)) = cut(rest, "```yaml\n") else {
            return Err("the documentation has no ```yaml example".into());
        };
        let (example, sections) = cut(rest, "# ").unwrap_or((rest, ""));
        Ok(Source {
            path: path.to_owned(),
            summary: summary.replace('\n', " ").trim_end_matches('.').to_owned(),
            text: text.trim().to_owned(),
            example: example.trim().to_owned(),
            sections: sections.trim().to_owned(),
        })
    }

    /// Every YAML example.
    pub(crate) fn examples(&self) -> Vec<&str> {
        let whole = self.example.split("```yaml\n").skip(1);
        let more = self.sections.split("```yaml\n").skip(1);
        whole
            .chain(more)
            .filter_map(|rest| rest.split_once("```").map(|(yaml, _)| yaml))
            .collect()
    }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let list = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let paths: Result<Vec<PathBuf>, _> = list.map(|entry| entry.map(|e| e.path())).collect();
    let mut paths = paths.map_err(|e| e.to_string())?;
    paths.sort();
    Ok(paths)
}

/// The text in two, before the first line that begins with `start`.
fn cut<'a>(text: &'a str, start: &str) -> Option<(&'a str, &'a str)> {
    if text.starts_with(start) {
        return Some(("", text));
    }
    let at = text.find(&format!("\n{start}"))?;
    Some((&text[..at], &text[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "//! `stop`: stops\n//! requests.\n//!\n//! More.\n//!\n//! ```yaml\n//! a: 1\n//! ```\n//!\n//! Of it.\n//!\n//! # Answers\n//!\n//! - 403\n\nuse x;\n//! no\n";

    #[test]
    fn the_parts_of_the_documentation() {
        let source = Source::read("stop", "plugins/stop.rs", FILE).unwrap();
        assert_eq!(source.summary, "stops requests");
        assert_eq!(source.text, "More.");
        assert_eq!(source.example, "```yaml\na: 1\n```\n\nOf it.");
        assert_eq!(source.sections, "# Answers\n\n- 403");
        assert_eq!(source.examples(), ["a: 1\n"]);
    }

    #[test]
    fn what_is_missing() {
        let check = |name: &str, file: &str, expected: &str| {
            let text = Source::read(name, "", file).err().unwrap_or_default();
            assert!(text.contains(expected), "{text}");
        };
        check("go", FILE, "does not begin with \"`go`: \"");
        check("stop", &FILE.replace("yaml", "text"), "no ```yaml example");
        check("stop", &FILE.replace("More", "See [`Stop`]"), "names items");
        assert!(Source::find("no-such-plugin").is_err());
    }
}
